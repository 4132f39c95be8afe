"""The tools that a Responses request offers: functions, tools that take plain text, and those only its server knows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from baton.serve.dialects.fields import Fields, wrong
from baton.serve.dialects.translation import SHELL_INPUT, TEXT_INPUT
from baton.serve.exchange import Ask, ToolOffer


def read_tools(fields: Fields) -> tuple[ToolOffer, ...]:
    """All tools; those of a namespace are named `namespace/tool`."""
    offers: list[ToolOffer] = []
    for each in fields.each("tools"):
        if each.text("type") == "namespace":
            offers += [_tool(inner, each.text("name") + "/") for inner in each.each("tools")]
        else:
            offers.append(_tool(each, ""))
    return tuple(offers)


def _tool(fields: Fields, space: str) -> ToolOffer:
    kind = fields.text("type")
    if kind != "function":
        name = fields.get("name")
        told = fields.get("description")
        return ToolOffer(
            name=space + (name if isinstance(name, str) and name else kind),
            description=told if isinstance(told, str) else "",
            parameters={"custom": TEXT_INPUT, "local_shell": SHELL_INPUT}.get(kind, {}),
            raw=fields.raw,
        )
    name = fields.text("name")
    if not name:
        raise wrong(fields.at("name"), name, "a name of at least one character")
    return ToolOffer(
        name=space + name, description=fields.text("description", ""), parameters=fields.object("parameters")
    )


def tool_kinds(tools: Sequence[ToolOffer]) -> dict[str, str]:
    """Of each tool that is no function, its kind."""
    return {offer.name: str(offer.raw.get("type")) for offer in tools if offer.raw is not None}


def write_tools(tools: Sequence[ToolOffer]) -> list[dict[str, Any]]:
    """Tools in their plain form."""
    told: list[dict[str, Any]] = []
    for space, group in groupby(tools, key=lambda offer: offer.name.rpartition("/")[0]):
        inner = [_write(offer) for offer in group]
        told += [{"type": "namespace", "name": space, "tools": inner}] if space else inner
    return told


def _write(offer: ToolOffer) -> dict[str, Any]:
    if offer.raw is not None and "function" not in offer.raw:
        return offer.raw
    told: dict[str, Any] = {"type": "function", "name": offer.name.rpartition("/")[2]}
    if offer.description:
        told["description"] = offer.description
    return told | ({"parameters": offer.parameters} if offer.parameters else {})


def read_choice(fields: Fields) -> str:
    """auto, none, required, or `tool:` and a name."""
    value = fields.get("tool_choice")
    if value is None or value in ("auto", "none", "required"):
        return value or "auto"
    if isinstance(value, str):
        raise wrong("tool_choice", value, "auto, none, required, or an object that names a tool")
    chosen = Fields(value, "tool_choice")
    kind = chosen.text("type")
    if kind == "allowed_tools":
        return chosen.text("mode", "auto")
    return f"tool:{chosen.text('name', kind)}"


def write_choice(ask: Ask) -> Any:
    """The choice as a request tells it."""
    kind, _, name = ask.tool_choice.partition(":")
    if kind != "tool":
        return ask.tool_choice
    kind = tool_kinds(ask.tools).get(name, "function")
    return {"type": kind, "name": name} if kind in ("function", "custom") else {"type": kind}
