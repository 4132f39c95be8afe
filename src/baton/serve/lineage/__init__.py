"""Who asked: from a session's exchanges to agents, their parents, and what passed between them."""
