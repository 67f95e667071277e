-- By whose clock `wake_at` was set: if that is a time to come, the clock was ahead, and the lease or
-- pause counts from now on. Timers have `updated_at` for it.
ALTER TABLE turns ADD COLUMN held_at timestamptz;
CREATE INDEX turns_held ON turns (held_at) WHERE attempts > 0 AND wake_at IS NOT NULL;
CREATE INDEX timers_claimed ON timers (updated_at) WHERE state = 'claimed';
ALTER TABLE effects ADD COLUMN held_at timestamptz;
CREATE INDEX effects_claimed ON effects (kind, held_at) WHERE state = 'claimed';
