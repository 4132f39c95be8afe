"""Attacks as data: what an attacker says, where it is put, what it is for, and how the trace shows that it worked."""
