"""AgentDojo's four suites as tasks: what a user asks, tools in a simulated world, and injections by strangers."""
