-- Reminders are counted by the time they came.
CREATE INDEX turns_reminders ON turns (queued_at) WHERE kind = 'reminder';
