"""Credentials: secrets that tools need, each scoped to the agents that may use it.

    [api_key]
    env = "SEARCH_KEY"        # or file = "/run/secrets/search"
    roles = ["searcher"]      # or agents = ["worker1"]; nobody else gets it
    tools = ["search"]        # left out: every tool that asks for an api_key

A tool asks by a parameter of type `baton.team.tools.secret.ToolSecret`, which no model sees or fills in.

Invariant: the values are read when a run begins and are written nowhere. They are no part of a team's settings, of what
a policy reads or of a trace: whatever comes from a tool, an engine or a person is scrubbed of them, as they are and in
the forms that errors and addresses carry them in (JSON, URL, hexadecimal, base64), before anybody reads it or writes it
down. What a tool sends elsewhere, a value it cuts up, or one it enciphers is the tool's concern.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, quote_plus

from msgspec import Struct, structs

from baton.errors import UsageError, nearest
from baton.settings import decode
from baton.team.agent import Role
from baton.team.protocol import Answer, EngineError
from baton.team.tools.secret import ToolSecret
from baton.team.tools.tool import Tool, ToolOutcome

_LEAST = 8
"""Characters. A shorter value would be found in texts that have nothing to do with it."""
_LEAST_CUT = 4
"""Characters of a value that count as its beginning, where a text was cut."""
_NAME = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)


class Credential(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one secret is, and who may use it."""

    env: str | None = None
    """The environment variable that holds it."""
    file: str | None = None
    """Or the file."""
    roles: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    """Agents that may use it by name, such as worker1, besides those of the roles."""
    tools: tuple[str, ...] = ()
    """Tools that get it; empty: all that ask for it."""

    def is_for(self, agent: str, role: str, tool: str) -> bool:
        """Whether this agent may use it in this tool."""
        allowed = agent in self.agents or role in self.roles
        return allowed and (not self.tools or tool in self.tools)


class Credentials(Struct, frozen=True, kw_only=True):
    """The secrets of a team by the name of the parameter that asks for them. Where they are, not what they are."""

    by_name: dict[str, Credential] = {}

    def __post_init__(self) -> None:
        for name, each in self.by_name.items():
            where = f"credential {name!r}"
            if not _NAME.fullmatch(name):
                raise UsageError(f"{where}: expected a parameter's name, such as api_key.")
            if (each.env is None) == (each.file is None):
                raise UsageError(f'{where}: expected one of env = "VARIABLE" and file = "PATH".')
            if not each.roles and not each.agents:
                raise UsageError(
                    f'{where}: nobody may use it. Say who: roles = ["worker"] or agents = ["worker1"].'
                )


NO_CREDENTIALS = Credentials()


def credentials_in(path: str) -> Credentials:
    """The credentials of a TOML file."""
    found = {}
    for name, given in _table(path).items():
        if not isinstance(given, dict):
            raise UsageError(
                f'{path}: {name} is {type(given).__name__}; expected a table: [{name}] with env = "VARIABLE".'
            )
        found[name] = decode(Credential, given, path, name)
    return Credentials(by_name=found)


def _table(path: str) -> dict[str, object]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file of credentials.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read ({error}).") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}.") from None


def credentials_of(path: str | None) -> Credentials:
    """Those of a file, where one is given."""
    return NO_CREDENTIALS if path is None else credentials_in(path)


class Vault:
    """The values for one run, and the scrubbing of them."""

    def __init__(self, credentials: Credentials, values: Mapping[str, str]) -> None:
        self._credentials = credentials
        self._secrets = {name: ToolSecret(name, value) for name, value in values.items()}
        self._named = {form: name for name, value in values.items() for form in _forms(value)}
        longest = sorted(self._named, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest))) if longest else None

    def __repr__(self) -> str:
        return f"Vault({', '.join(self._secrets)})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("credentials are not written down, so a vault cannot be pickled")

    def scrub(self, text: str) -> str:
        """The text without any of the values."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: f"[credential {self._named[found[0]]}]", text)

    def scrub_cut(self, text: str) -> str:
        """The same of a result that was cut short, which may end in the middle of a value."""
        text = self.scrub(text)
        kept, note, left_out = text.rpartition("\n[")
        for form, name in self._named.items():
            for length in range(len(form) - 1, _LEAST_CUT - 1, -1):
                if kept.endswith(form[:length]):
                    return f"{kept[:-length]}[credential {name}]{note}{left_out}"
        return text

    def holds(self, text: str) -> str | None:
        """Which credential a text has in it."""
        found = self._pattern.search(text) if self._pattern is not None else None
        return None if found is None else self._named[found[0]]

    def cleaned(self, result: Any) -> Any:
        """What a tool or an engine gave, without any. An answer that held one loses its tokens, which hold it too."""
        if isinstance(result, ToolOutcome):
            clean = self.scrub_cut if result.truncated else self.scrub
            return structs.replace(result, text=clean(result.text))
        if isinstance(result, EngineError) and self.holds(str(result)) is not None:
            error = EngineError(self.scrub(str(result)))
            error.prompt_tokens, error.completion_tokens = result.prompt_tokens, result.completion_tokens
            return error
        if isinstance(result, Answer) and self.holds(result.text) is not None:
            text = self.scrub(result.text)
            return structs.replace(result, text=text, completion_ids=None, logprobs=None, token_ends=None)
        return result

    def secret(self, name: str, tool: str, agent: str, role: str) -> ToolSecret | None:
        """One credential for a call of this tool by this agent; None: it may not have it."""
        known = self._credentials.by_name.get(name)
        return self._secrets.get(name) if known is not None and known.is_for(agent, role, tool) else None


def secrets_for(
    tool: Tool, agent: str, role: str, vault: Vault | None
) -> dict[str, ToolSecret] | ToolOutcome:
    """What a tool is given in a call of this agent; else how the call ended, as the agent reads it."""
    given: dict[str, ToolSecret] = {}
    for name in tool.secrets:
        found = None if vault is None else vault.secret(name, tool.name, agent, role)
        if found is None:
            why = f"{tool.name} needs the credential {name!r}, which {agent} has not been given."
            return ToolOutcome(text=why, ok=False, error="credential")
        given[name] = found
    return given


def open_vault(credentials: Credentials, roles: Iterable[Role], tools: Mapping[str, Tool]) -> Vault | None:
    """The values of a team's credentials; None: it has none and needs none. A run that lacks one is refused here."""
    needed: dict[str, str] = {}
    known = tuple(roles)
    for name in dict.fromkeys(name for role in known for name in role.tools):
        found = tools.get(name)
        needed |= dict.fromkeys(found.secrets, name) if found is not None else {}
    for name, used in needed.items():
        if name not in credentials.by_name:
            hint = f" {nearest(name, credentials.by_name)}" if credentials.by_name else ""
            raise UsageError(
                f"the tool {used!r} needs the credential {name!r}, and none is called so.{hint} Write a file with "
                f'[{name}], env = "VARIABLE" and roles = ["ROLE"], and type: --credentials FILE (in Python: '
                "Team.of(..., credentials=credentials_in(FILE)))"
            )
    _check_who(credentials, known)
    if not credentials.by_name:
        return None
    return Vault(credentials, {name: _value(name, each) for name, each in credentials.by_name.items()})


def _check_who(credentials: Credentials, roles: Iterable[Role]) -> None:
    names = [role.name for role in roles]
    for name, each in credentials.by_name.items():
        for role in each.roles:
            if role not in names:
                raise UsageError(
                    f"credential {name!r} is for {role!r}, which is no role. {nearest(role, names)}"
                )


def refuse_in_plain_sight(vault: Vault, texts: Iterable[tuple[str, str]]) -> None:
    """Refuse to begin where a prompt or a setting has a credential in it: (what it is, its text)."""
    for what, text in texts:
        if (name := vault.holds(text)) is not None:
            raise UsageError(
                f"{what} has the credential {name!r} in it, and would be written down. Take it out."
            )


def _value(name: str, credential: Credential) -> str:
    if credential.env is not None:
        where = f"the environment variable {credential.env}"
        value = os.environ.get(credential.env, "")
    else:
        where = f"the file {credential.file}"
        try:
            value = Path(credential.file or "").read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise UsageError(f"credential {name!r}: {where} cannot be read ({why}).") from None
    value = value.strip()
    if not value:
        raise UsageError(f"credential {name!r}: {where} is empty or not set.")
    if len(value) < _LEAST:
        raise UsageError(
            f"credential {name!r}: {where} has {len(value)} characters; expected {_LEAST} or more, for a shorter one "
            "cannot be told from other text and kept out of the trace."
        )
    return value


def _forms(value: str) -> Iterator[str]:
    """A value as it may turn up in texts."""
    raw = value.encode()
    plain: tuple[Callable[[str], str], ...] = (
        str,
        lambda text: json.dumps(text)[1:-1],
        lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
        lambda text: repr(text)[1:-1],
        lambda text: quote(text, safe=""),
        quote,
        quote_plus,
    )
    yield from dict.fromkeys(form(value) for form in plain)
    yield from (raw.hex(), raw.hex().upper())
    for before in range(3):  # where in a longer text it stands decides how base64 writes it
        whole = b64encode(bytes(before) + raw).decode().rstrip("=")
        bits = 8 * before
        core = whole[-(-bits // 6) : (bits + 8 * len(raw)) // 6]
        yield core
        yield core.translate({ord("+"): "-", ord("/"): "_"})
