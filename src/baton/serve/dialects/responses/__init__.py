"""Responses, OpenAI's dialect of items."""
