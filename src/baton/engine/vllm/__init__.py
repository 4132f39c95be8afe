"""Answers from a vLLM server: its protocol, the engine on it, the checks of it, and a server of one's own."""
