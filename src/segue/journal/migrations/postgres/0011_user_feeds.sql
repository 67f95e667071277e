-- Positions rise over all threads of a user, so that one position says how far a listener of all of
-- them is. Every step that stores something in a thread locks this row after the thread.
CREATE TABLE feeds (
    user_id          text PRIMARY KEY,
    last_position    bigint NOT NULL DEFAULT 0,
    -- Of the last deletion of a thread.
    deleted_position bigint NOT NULL DEFAULT 0
);
INSERT INTO feeds (user_id, last_position)
    SELECT user_id, max(last_position) FROM threads GROUP BY user_id;
-- Of the last event or change of the list entry: `last_position` is that of the thread's newest id,
-- hidden or not.
ALTER TABLE threads ADD COLUMN changed_position bigint NOT NULL DEFAULT 0;
UPDATE threads SET changed_position = last_position;
CREATE INDEX threads_changed ON threads (user_id, changed_position);

CREATE FUNCTION segue_follow_thread() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO feeds (user_id, last_position)
        VALUES (NEW.user_id, greatest(NEW.last_position, NEW.changed_position))
        ON CONFLICT (user_id) DO UPDATE
        SET last_position = greatest(feeds.last_position, excluded.last_position);
    RETURN NULL;
END $$;
CREATE TRIGGER threads_followed AFTER INSERT OR UPDATE OF last_position, changed_position ON threads
    FOR EACH ROW EXECUTE FUNCTION segue_follow_thread();
CREATE FUNCTION segue_forget_thread() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE feeds SET last_position = last_position + 1, deleted_position = last_position + 1
        WHERE user_id = OLD.user_id;
    RETURN NULL;
END $$;
CREATE TRIGGER threads_forgotten AFTER DELETE ON threads
    FOR EACH ROW EXECUTE FUNCTION segue_forget_thread();

-- What of a thread its user has read, and the number of the agent's messages after it.
ALTER TABLE threads ADD COLUMN read_position bigint NOT NULL DEFAULT 0;
ALTER TABLE threads ADD COLUMN unread bigint NOT NULL DEFAULT 0;
UPDATE threads SET read_position = preview_position;

CREATE INDEX turns_running_of_user ON turns (user_id) WHERE state = 'running';
CREATE INDEX turns_waiting_of_user ON turns (user_id) WHERE is_waiting;
