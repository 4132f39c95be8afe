"""Answering a program from the recording of its session: what counts as the same question, and what is done if not."""
