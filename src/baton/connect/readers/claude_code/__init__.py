"""Claude Code: sessions, their agents, their teams."""
