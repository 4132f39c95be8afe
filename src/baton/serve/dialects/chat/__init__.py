"""Chat Completions, as OpenAI and most other servers speak it."""
