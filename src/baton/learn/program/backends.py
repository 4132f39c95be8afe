"""What answers a program for a policy: the engine that samples with the policy's weights, behind the endpoint.

Every answer is one draw: where a program demands a tool or JSON, an answer that is neither is given as it is and not
drawn again, since a draw that was chosen among several is not the policy's, and could not be trained on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from baton.engine.torch import TorchEngine
from baton.errors import UsageError
from baton.learn.program.part import ProgramPart
from baton.serve.backend import Backend
from baton.serve.backends.engine import EngineOptions
from baton.serve.backends.template_prompts import TemplatePrompts
from baton.serve.backends.torch import over_engine
from baton.serve.exchange import Ask, Utterance
from baton.serve.tool_parsers import find_parser, parser_of
from baton.trace.records import Ints


def backend_of(engine: Any, part: ProgramPart) -> Backend:
    """The backend of a policy's engine. Calls come from the server's own loop, so none is answered in lockstep."""
    own = getattr(engine, "engine", engine)
    if isinstance(own, TorchEngine):
        return over_engine(
            own, tools=part.tools, options=EngineOptions(max_tokens=part.max_tokens, draws=1, guided=False)
        )
    if hasattr(own, "reply"):
        found: Backend = own
        return found
    raise UsageError(
        f"engine {own.name!r} does not give token ids, so a program's calls cannot be answered by it in training. "
        "Name a local model for every policy of a program."
    )


class ProgramPrompts:
    """What a model reads and says in a program, for a supervised start."""

    def __init__(self, part: ProgramPart, tokenizer: Any) -> None:
        """`tokenizer` None: there is none yet, and only texts are asked for."""
        self._prompts = (
            None if tokenizer is None else TemplatePrompts(tokenizer, policy="", parser=_parser(part))
        )
        template = None if tokenizer is None else tokenizer.chat_template
        self._parser = _parser(part) or parser_of(template)

    def ids(self, asks: Sequence[Ask]) -> list[Ints]:
        """The prompts as the endpoint makes them."""
        prompts = self._prompts
        assert prompts is not None

        async def every() -> list[Ints]:
            return [(await prompts.prompt(ask, None)).ids or Ints() for ask in asks]

        return asyncio.run(every())

    def texts(self, ask: Ask) -> list[str]:
        """What is read in an ask."""
        found = [each.text for each in ask.messages] + [self.said(each) for each in ask.messages if each.uses]
        return [*found, self._parser.offer(ask.tools)] if ask.tools else found

    def said(self, said: Utterance) -> str:
        """What saying this looks like."""
        written = self._parser.write(said.uses) if said.uses else ""
        return "\n".join(filter(None, (said.text, written)))


def _parser(part: ProgramPart) -> Any:
    return None if part.tools is None else find_parser(part.tools)
