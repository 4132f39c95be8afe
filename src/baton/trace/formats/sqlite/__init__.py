"""Live stores: a SQLite file that runs are written to while they happen, and that survives a crash."""
