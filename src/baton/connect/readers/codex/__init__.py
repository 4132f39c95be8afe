"""Codex: rollout files and trace bundles."""
