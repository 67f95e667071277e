-- What became of follow-ups is counted from what is stored of them: by when they were fired or
-- ended, and by what was decided about them.
CREATE INDEX turns_follow_ups ON turns (queued_at) WHERE kind = 'follow_up';
CREATE INDEX timers_ended ON timers (updated_at)
    WHERE kind = 'follow_up' AND state IN ('cancelled', 'suppressed', 'expired', 'missed');
CREATE INDEX decisions_of_timers ON decisions (timer_id) WHERE kind = 'gates';
-- Not the plans, of which every turn has one.
CREATE INDEX decisions_of_turns ON decisions (turn_id, kind) WHERE kind <> 'plan';
