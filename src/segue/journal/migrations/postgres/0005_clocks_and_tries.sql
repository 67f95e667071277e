-- By whose clock `wake_at` was set: if that is a time to come, the clock was ahead, and the lease or
-- pause counts from now on. Timers have `updated_at` for it.
ALTER TABLE turns ADD COLUMN held_at timestamptz;
CREATE INDEX turns_held ON turns (held_at) WHERE attempts > 0 AND wake_at IS NOT NULL;
CREATE INDEX timers_claimed ON timers (updated_at) WHERE state = 'claimed';
ALTER TABLE effects ADD COLUMN held_at timestamptz;
CREATE INDEX effects_claimed ON effects (kind, held_at) WHERE state = 'claimed';

-- What a turn's own run broke, and how long workers have had it before the present try. What else
-- ended a try (a shutdown, a crash, an outage) is the rest of its attempts.
ALTER TABLE turns ADD COLUMN faults integer NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN worked interval NOT NULL DEFAULT '0';
ALTER TABLE turns ADD COLUMN begun_at timestamptz;
