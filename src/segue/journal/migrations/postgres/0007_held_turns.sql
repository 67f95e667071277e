-- `held_at` is set when a turn is queued, too: one index and one repair for all that a clock that
-- was ahead left.
UPDATE turns SET held_at = queued_at WHERE state = 'queued' AND attempts = 0;
DROP INDEX turns_untried;
DROP INDEX turns_held;
CREATE INDEX turns_held ON turns (held_at) WHERE wake_at IS NOT NULL;
