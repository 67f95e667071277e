-- Facts that are counted by, in columns of their own: to read them out of the JSON took most of the
-- time of counting. They are kept in the indices alone. What cannot be read counts as not known and
-- keeps nobody from writing it.
ALTER TABLE decisions ADD COLUMN trigger_type ANY GENERATED ALWAYS AS
    (CASE WHEN kind = 'gates' AND json_valid(facts) THEN facts ->> 'trigger' END) VIRTUAL;
ALTER TABLE decisions ADD COLUMN variant ANY GENERATED ALWAYS AS
    (CASE WHEN kind = 'gates' AND json_valid(facts) THEN facts ->> 'variant' END) VIRTUAL;
ALTER TABLE decisions ADD COLUMN consecutive ANY GENERATED ALWAYS AS
    (CASE WHEN kind = 'gates' AND json_valid(facts) THEN facts ->> 'consecutive' END) VIRTUAL;
ALTER TABLE decisions ADD COLUMN held_out ANY GENERATED ALWAYS AS
    (CASE WHEN kind = 'gates' AND json_valid(facts) THEN facts ->> 'held_out' END) VIRTUAL;
ALTER TABLE decisions ADD COLUMN gate ANY GENERATED ALWAYS AS
    (CASE WHEN kind IN ('gates', 'gates_before_showing') AND json_valid(facts)
        THEN facts ->> 'gate' END) VIRTUAL;
ALTER TABLE decisions ADD COLUMN failed ANY GENERATED ALWAYS AS
    (CASE WHEN kind = 'memory_query' AND json_valid(facts) THEN facts ->> 'failed' END) VIRTUAL;
-- The indices of counting with all that it reads, so that it need not look at the tables.
DROP INDEX decisions_of_turns;
CREATE INDEX decisions_of_turns
    ON decisions (turn_id, kind, outcome, trigger_type, variant, consecutive, gate, failed)
    WHERE kind <> 'plan';
DROP INDEX decisions_of_timers;
CREATE INDEX decisions_of_timers ON decisions (timer_id, outcome, consecutive, held_out, gate)
    WHERE kind = 'gates';
DROP INDEX turns_by_thread;
CREATE INDEX turns_by_thread ON turns (thread_id, id, kind, queued_at, shown_at);
-- A user's memories with all agents, for who takes them out or deletes them.
CREATE INDEX memories_of_user ON memories (user_id, id);
