"""Asking a server for a program: with the key it may have sent, and with refusals in the contract's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from baton.engine.openai import ServerLimits
from baton.engine.posting import NoAnswer, Poster, Secret, secret_in
from baton.serve.backend import Unanswerable, caller_headers
from baton.serve.session_keys import KEY_PREFIX

T = TypeVar("T")
PROGRAM = "program"
"""Where a key comes from: the program's own request."""


def find_secret(variable: str, header: str) -> Secret | None:
    """The key for one request: of an environment variable, or, for `program`, the one that the program sent.

    A program's key that only names a session (`baton-NAME`) is none.
    """
    if variable != PROGRAM:
        return secret_in(variable, header)
    given = caller_headers.get()
    for name in ("x-api-key", "authorization"):
        value = given.get(name, "")
        if value and not value.removeprefix("Bearer ").startswith(KEY_PREFIX):
            return Secret(name, value)
    return None


def refusal(error: NoAnswer) -> Unanswerable:
    """What a server did not answer, as a program is told it."""
    return Unanswerable(str(error), status=error.status, passing=error.passing)


class ProgramPoster:
    """Posts JSON for programs. Raises `Unanswerable` and nothing else."""

    def __init__(self, limits: ServerLimits | None = None) -> None:
        self._poster = Poster(limits)

    async def post(
        self,
        url: str,
        body: Mapping[str, Any],
        *,
        secret: Secret | None,
        read: Callable[[bytes, str], T],
        headers: Mapping[str, str] | None = None,
    ) -> T:
        """What `read` makes of the answer's body and type."""

        def reading(raw: bytes, kind: str) -> T:
            try:
                return read(raw, kind)
            except Unanswerable as error:
                raise NoAnswer(str(error), status=error.status, passing=error.passing) from None

        try:
            return await self._poster.post(url, body, secret=secret, read=reading, headers=headers)
        except NoAnswer as error:
            raise refusal(error) from None

    async def get(self, url: str, *, secret: Secret | None) -> Any:
        """The JSON at an address."""
        try:
            return await self._poster.get(url, secret=secret)
        except NoAnswer as error:
            raise refusal(error) from None

    async def close(self) -> None:
        await self._poster.close()
