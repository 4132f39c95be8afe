"""The same fan-out in other frameworks, each with its own fake model."""
