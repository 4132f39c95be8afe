"""Other systems' traces, in and out: readers, live recorders, a receiver, writers."""
