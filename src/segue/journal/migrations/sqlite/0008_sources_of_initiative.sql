-- A follow-up that a program requested, an event and a reminder have a key: there may be several in
-- a thread, and the same key does not make a second one. The one that silence brings has none.
ALTER TABLE timers ADD COLUMN key TEXT;
CREATE UNIQUE INDEX timers_keys ON timers (thread_id, key) WHERE key IS NOT NULL;
CREATE INDEX timers_by_key ON timers (user_id, key) WHERE key IS NOT NULL;
DROP INDEX timers_one_follow_up;
CREATE UNIQUE INDEX timers_one_follow_up ON timers (thread_id)
    WHERE kind = 'follow_up' AND key IS NULL AND state IN ('pending', 'postponed', 'claimed');
-- The turn that a timer queued: several events can share one.
ALTER TABLE timers ADD COLUMN turn_id INTEGER;
CREATE INDEX timers_of_turns ON timers (turn_id) WHERE turn_id IS NOT NULL;
-- A user's reminders.
CREATE INDEX timers_reminders ON timers (user_id, wake_at)
    WHERE kind = 'reminder' AND wake_at IS NOT NULL;
DROP INDEX timers_ended;
CREATE INDEX timers_ended ON timers (updated_at) WHERE kind IN ('follow_up', 'event')
    AND state IN ('cancelled', 'suppressed', 'expired', 'missed');
