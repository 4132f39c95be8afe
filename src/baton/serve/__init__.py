"""An endpoint that any agent program can be pointed at, and what is made of its calls: traces, replays and forks."""
