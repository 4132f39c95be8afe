"""A client whose connections end with the event loop that they belong to, whoever forgets them.

A run does not close the engines that it was given: they may be asked again, on another loop. `asyncio.run` ends every
asynchronous generator that its loop still has, so one that waits is told when the loop is about to close.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx


async def closed_with_loop(client: httpx.AsyncClient) -> AsyncGenerator[None]:
    """What closes `client`, now by its `aclose` or by itself at the loop's end: `await anext(made)` and keep it."""
    try:
        yield
    finally:
        await client.aclose()
