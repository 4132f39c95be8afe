"""Messages, Anthropic's dialect of content blocks."""
