-- A thread gets a timer with each reply; a message looks for those alone that still wait.
CREATE INDEX timers_alive ON timers (thread_id)
    WHERE state IN ('pending', 'postponed', 'claimed');
