"""Starts SkyRL's server of the Tinker protocol, API and engine, in an environment of its own.

Run by that environment's Python, so nothing of Baton is imported here. SkyRL 0.3.0 starts its engine through `uv run`,
and two of its annotations need Python 3.12; both are put right before it is imported.
"""

from __future__ import annotations

import argparse
import sys
import typing
from pathlib import Path

import typing_extensions

typing.TypedDict = typing_extensions.TypedDict  # pydantic refuses typing's before Python 3.12


def main() -> None:
    part, rest = sys.argv[1], sys.argv[2:]
    sys.argv = [sys.argv[0], *rest]
    if part == "engine":
        from skyrl.tinker import engine

        engine.main()
    else:
        _api()


def _api() -> None:
    import uvicorn
    from skyrl.tinker import api
    from skyrl.tinker.config import EngineConfig, add_model, config_to_argv

    def started(_parent: list[str], config: EngineConfig) -> list[str]:
        return [sys.executable, str(Path(__file__).resolve()), "engine", *config_to_argv(config)]

    api._build_uv_run_cmd_engine = started
    parser = argparse.ArgumentParser()
    add_model(parser, EngineConfig)
    parser.add_argument("--port", type=int, required=True)
    given = vars(parser.parse_args())
    known = {name: value for name, value in given.items() if name in EngineConfig.model_fields}
    api.app.state.engine_config = EngineConfig.model_validate(known)
    uvicorn.run(api.app, host="127.0.0.1", port=given["port"], log_level="warning")


if __name__ == "__main__":
    main()
