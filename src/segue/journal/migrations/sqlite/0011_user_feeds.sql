-- Positions rise over all threads of a user, so that one position says how far a listener of all of
-- them is.
CREATE TABLE feeds (
    user_id          TEXT PRIMARY KEY,
    last_position    INTEGER NOT NULL DEFAULT 0,
    -- Of the last deletion of a thread.
    deleted_position INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO feeds (user_id, last_position)
    SELECT user_id, max(last_position) FROM threads GROUP BY user_id;
-- Of the last event or change of the list entry: `last_position` is that of the thread's newest id,
-- hidden or not.
ALTER TABLE threads ADD COLUMN changed_position INTEGER NOT NULL DEFAULT 0;
UPDATE threads SET changed_position = last_position;
CREATE INDEX threads_changed ON threads (user_id, changed_position);

CREATE TRIGGER threads_added AFTER INSERT ON threads BEGIN
    INSERT INTO feeds (user_id, last_position)
        VALUES (new.user_id, max(new.last_position, new.changed_position))
        ON CONFLICT DO UPDATE SET last_position = max(last_position, excluded.last_position);
END;
CREATE TRIGGER threads_followed AFTER UPDATE OF last_position, changed_position ON threads BEGIN
    UPDATE feeds SET last_position = max(last_position, new.last_position, new.changed_position)
        WHERE user_id = new.user_id;
END;
CREATE TRIGGER threads_forgotten AFTER DELETE ON threads BEGIN
    UPDATE feeds SET last_position = last_position + 1, deleted_position = last_position + 1
        WHERE user_id = old.user_id;
END;

-- What of a thread its user has read, and the number of the agent's messages after it.
ALTER TABLE threads ADD COLUMN read_position INTEGER NOT NULL DEFAULT 0;
ALTER TABLE threads ADD COLUMN unread INTEGER NOT NULL DEFAULT 0;
UPDATE threads SET read_position = preview_position;

CREATE INDEX turns_running_of_user ON turns (user_id) WHERE state = 'running';
CREATE INDEX turns_waiting_of_user ON turns (user_id) WHERE is_waiting = 1;
