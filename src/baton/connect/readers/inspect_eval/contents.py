"""What an Inspect sample holds apart: texts under attachments, messages in a pool, and its scores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from baton.connect.import_report import ImportReport
from baton.connect.readers.chat_messages import as_text, count_of, text_of
from baton.connect.seen import Seen, SeenReward

_MARKS = ("attachment://", "tc://")
_LETTERS: Final = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Inspect's own words for scores."""


class ModelAnswer(Struct, frozen=True, kw_only=True):
    """What a model event says that the model answered."""

    text: str
    uses: tuple[str, ...]
    """Ids of the tool calls in it."""
    usage: tuple[int | None, int | None, int | None]
    """Total, whole prompt, answer."""
    finish_reason: str | None
    temperature: float | None


class SampleContents:
    """Resolves what stands elsewhere in the sample."""

    def __init__(self, sample: dict[str, Any]) -> None:
        transcript = sample.get("transcript")  # before October 2024
        self.transcript: dict[str, Any] = transcript if isinstance(transcript, dict) else {}
        attached = sample.get("attachments") or self.transcript.get("content")
        self.attached: dict[str, Any] = attached if isinstance(attached, dict) else {}
        data = sample.get("events_data")
        pool = data.get("messages") if isinstance(data, dict) else None
        self.pool: list[Any] = pool if isinstance(pool, list) else []

    def text(self, text: str) -> str:
        """The text, with what is attached put in its place."""
        if not text.startswith(_MARKS):
            return text
        return as_text(self.attached.get(text.partition("://")[2], text))

    def resolved(self, value: Any) -> Any:
        """A value, with attached texts in it put in their place."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self.resolved(each) for key, each in value.items()}
        return [self.resolved(each) for each in value] if isinstance(value, list) else value

    def messages(self, event: dict[str, Any]) -> list[Any]:
        """The prompt of a model event, whole."""
        own, refs = event.get("input"), event.get("input_refs")
        found = list(own) if isinstance(own, list) else []
        for span in refs if isinstance(refs, list) else ():
            if isinstance(span, list) and len(span) == 2 and all(type(end) is int for end in span):
                found += self.pool[span[0] : span[1]]
            elif type(span) is int and 0 <= span < len(self.pool):
                found.append(self.pool[span])
        return found

    def prompt(self, event: dict[str, Any], shown: set[str]) -> tuple[tuple[str, str], ...]:
        """What is new in a prompt to an agent that has been shown these messages."""
        new = []
        for place, message in enumerate(self.messages(event)):
            if not isinstance(message, dict):
                continue
            text = self.text(text_of(self.resolved(message.get("content"))))
            name = as_text(message.get("id")) or f"{place}:{text}"
            if name in shown:
                continue
            shown.add(name)
            if message.get("role") != "assistant":  # what a model said stands in its own call
                new.append((as_text(message.get("role")) or "user", text))
        return tuple(new)

    def answer(self, event: dict[str, Any]) -> ModelAnswer:
        given = event.get("output")
        output = given if isinstance(given, dict) else {}
        choices = output.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        said = choice.get("message")
        message: dict[str, Any] = said if isinstance(said, dict) else {}
        config = event.get("config")
        temperature = config.get("temperature") if isinstance(config, dict) else None
        return ModelAnswer(
            text=self.text(text_of(self.resolved(message.get("content")))),
            uses=tuple(
                as_text(use.get("id")) for use in message.get("tool_calls") or () if isinstance(use, dict)
            ),
            usage=_usage(output.get("usage")),
            finish_reason=as_text(choice.get("stop_reason")) or None,
            temperature=float(temperature) if isinstance(temperature, int | float) else None,
        )


def _usage(usage: Any) -> tuple[int | None, int | None, int | None]:
    """Total, whole prompt and answer. Providers differ in whether caches stand in the input; the total has all."""
    if not isinstance(usage, dict):
        return None, None, None
    total, said = count_of(usage.get("total_tokens")), count_of(usage.get("output_tokens"))
    if total and said is not None and total >= said:
        return total, total - said, said
    given = count_of(usage.get("input_tokens"))
    cached = sum(
        count_of(usage.get(word)) or 0 for word in ("input_tokens_cache_read", "input_tokens_cache_write")
    )
    return total, None if given is None else given + cached, said


def scores_of(
    value: dict[str, Any], about: dict[str, Any], session: str, at: str, report: ImportReport
) -> Iterator[Seen]:
    """The sample's scores, one reward for each number. The one that Inspect leads with is what the team earned."""
    results = about.get("results")
    headline = results.get("headline") if isinstance(results, dict) else None
    first = headline.get("score") if isinstance(headline, dict) else None
    scores = value.get("scores")
    if not isinstance(scores, dict):
        old = value.get("score")
        scores = {"score": old} if isinstance(old, dict) else {}
    first = first if first in scores else next(iter(scores), None)
    for name, score in scores.items():
        worth = score.get("value") if isinstance(score, dict) else score
        parts = worth if isinstance(worth, dict) else {"": worth}
        for part, each in parts.items():
            number = _number(each)
            channel = f"{name}.{part}" if part else as_text(name)
            if number is None:
                report.skip("a score that is no number", f"{at}#{channel}")
                continue
            yield SeenReward(
                session=session, key=f"score:{channel}", value=number, at=at, by=f"inspect {name}",
                name=None if channel == first else channel,
            )  # fmt: skip


def _number(value: Any) -> float | None:
    if isinstance(value, bool | int | float):
        return float(value)
    return _LETTERS.get(value) if isinstance(value, str) else None
