"""Policies: which weights answer for which role, and how they are kept."""
