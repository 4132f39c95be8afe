"""What answers a call, token in and token out: scripted, table, torch, OpenAI-compatible."""
