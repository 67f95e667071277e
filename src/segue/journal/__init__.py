"""The journal: durable threads, messages, turns and timers, on SQLite and PostgreSQL."""
