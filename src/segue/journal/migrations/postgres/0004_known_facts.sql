-- Facts that are counted by, in columns of their own: to read them out of the JSON took most of the
-- time of counting. What cannot be read counts as not known and keeps nobody from writing it.
CREATE FUNCTION segue_fact(facts text, name text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    RETURN facts::json ->> name;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $$;
ALTER TABLE decisions
    ADD COLUMN trigger_type text GENERATED ALWAYS AS
        (CASE WHEN kind = 'gates' THEN segue_fact(facts, 'trigger') END) STORED,
    ADD COLUMN variant text GENERATED ALWAYS AS
        (CASE WHEN kind = 'gates' THEN segue_fact(facts, 'variant') END) STORED,
    ADD COLUMN consecutive text GENERATED ALWAYS AS
        (CASE WHEN kind = 'gates' THEN segue_fact(facts, 'consecutive') END) STORED,
    ADD COLUMN held_out text GENERATED ALWAYS AS
        (CASE WHEN kind = 'gates' THEN segue_fact(facts, 'held_out') END) STORED,
    ADD COLUMN gate text GENERATED ALWAYS AS
        (CASE WHEN kind IN ('gates', 'gates_before_showing')
            THEN segue_fact(facts, 'gate') END) STORED,
    ADD COLUMN failed text GENERATED ALWAYS AS
        (CASE WHEN kind = 'memory_query' THEN segue_fact(facts, 'failed') END) STORED;
-- The indices of counting with all that it reads, so that it need not look at the tables.
DROP INDEX decisions_of_turns;
CREATE INDEX decisions_of_turns ON decisions (turn_id, kind)
    INCLUDE (outcome, trigger_type, variant, consecutive, gate, failed) WHERE kind <> 'plan';
DROP INDEX decisions_of_timers;
CREATE INDEX decisions_of_timers ON decisions (timer_id)
    INCLUDE (outcome, consecutive, held_out, gate) WHERE kind = 'gates';
DROP INDEX turns_by_thread;
CREATE INDEX turns_by_thread ON turns (thread_id, id) INCLUDE (kind, queued_at, shown_at);
-- A user's memories with all agents, for who takes them out or deletes them.
CREATE INDEX memories_of_user ON memories (user_id, id);
