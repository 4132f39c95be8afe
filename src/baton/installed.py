"""How this Baton came here, so that a hint about installing names what works from where it was installed."""

from __future__ import annotations

import json
import shlex
from typing import Any
from urllib.parse import unquote, urlsplit

NAME = "baton-rl"


def install_hint(extra: str) -> str:
    """The command that adds the packages of an extra to this Baton."""
    origin = _origin()
    url = origin.get("url", "")
    if folder := _folder(origin):
        editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
        return f"pip install {editable}{shlex.quote(f'{folder}[{extra}]')}"
    return (
        f"pip install {shlex.quote(f'{NAME}[{extra}] @ {_pip_url(origin)}' if url else f'{NAME}[{extra}]')}"
    )


def upgrade_hint() -> str:
    """The command that brings a newer Baton."""
    origin = _origin()
    if folder := _folder(origin):
        again = "" if origin.get("dir_info", {}).get("editable") else f" && pip install {shlex.quote(folder)}"
        return f"git -C {shlex.quote(folder)} pull{again}"
    if origin.get("url"):
        return f"pip install --upgrade --force-reinstall {shlex.quote(f'{NAME} @ {_pip_url(origin)}')}"
    return f"pip install --upgrade {NAME}"


def _origin() -> dict[str, Any]:
    """What pip wrote about the place it installed from (PEP 610); nothing for an index."""
    from importlib.metadata import PackageNotFoundError, distribution  # slow to import, and seldom needed

    try:
        text = distribution(NAME).read_text("direct_url.json")
        read = json.loads(text) if text else {}
    except (PackageNotFoundError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}


def _folder(origin: dict[str, Any]) -> str:
    return unquote(urlsplit(origin.get("url", "")).path) if "dir_info" in origin else ""


def _pip_url(origin: dict[str, Any]) -> str:
    url, vcs = str(origin["url"]), origin.get("vcs_info", {})
    asked = vcs.get("requested_revision")
    return f"{vcs['vcs']}+{url}" + (f"@{asked}" if asked else "") if "vcs" in vcs else url
