"""Questions over more documents than one agent can hold: generated, or from a folder of plain text."""

from __future__ import annotations

from baton.tasks.wide.wide_task import WideTask

__all__ = ["WideTask"]
