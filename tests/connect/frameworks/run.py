"""Runs the tests of other systems, each in a virtual environment of its own: their pins cannot share one.

    python tests/connect/frameworks/run.py                 # all of them
    python tests/connect/frameworks/run.py langgraph ag2   # some
    python tests/connect/frameworks/run.py --list

`NAME.txt` beside this file pins what `test_NAME.py` needs. The environment is made under .venv-connect/NAME, once for
each state of the pins, with Baton installed from this tree.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from hashlib import blake2b
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[2]
ENVS = REPO / ".venv-connect"
SERVED = REPO / "tests" / "serve" / "programs" / "test_programs.py"
"""Programs of the same systems, through the endpoint."""
_LAST_LINES = 3


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Run the tests of other systems, each in its own environment."
    )
    parser.add_argument("names", nargs="*", help="which; all of them when none is given")
    parser.add_argument("--list", action="store_true", help="print the names")
    parser.add_argument("--make", action="store_true", help="make the environments, and run nothing")
    args, more = parser.parse_known_args(argv)
    known = sorted(path.stem for path in HERE.glob("*.txt") if (HERE / f"test_{path.stem}.py").is_file())
    if args.list:
        print("\n".join(known))
        return 0
    if wrong := [name for name in args.names if name not in known]:
        print(f"test-connect: there is no {wrong[0]!r}. Expected one of: {', '.join(known)}.")
        return 2
    if args.make:
        problems = [problem for name in args.names or known if (problem := made(name)) is not None]
        print("\n".join(problems), end="")
        return 1 if problems else 0
    results = {name: tested(name, more) for name in args.names or known}
    print("\n" + "\n".join(f"{name:<16} {result}" for name, result in results.items()))
    return 0 if all(result == "passed" for result in results.values()) else 1


def tested(name: str, more: list[str]) -> str:
    """Passed, or what kept it from passing."""
    print(f"== {name}", flush=True)
    problem = made(name)
    if problem is not None:
        print(problem)
        return "no environment"
    python = ENVS / name / "bin" / "python"
    command = [
        str(python), "-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider", "-c", str(HERE / "pytest.ini"),
        "--rootdir", str(REPO), *more, str(HERE / f"test_{name}.py"), str(SERVED),
    ]  # fmt: skip
    environment = {**os.environ, "BATON_CONNECT": name, **QUIET}
    return "passed" if subprocess.run(command, cwd=REPO, env=environment).returncode == 0 else "FAILED"


# Nothing in these tests may leave the machine.
QUIET = {
    "OPENAI_AGENTS_DISABLE_TRACING": "0",  # the recorder is a processor of it; the exporter is taken away in the tests
    "OPENAI_API_KEY": "none", "CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_DISABLE_TRACKING": "true",
    "CREWAI_TRACING_ENABLED": "false", "LANGCHAIN_TRACING_V2": "false",
    "LANGSMITH_TRACING": "false", "DO_NOT_TRACK": "1", "ANONYMIZED_TELEMETRY": "false",
}  # fmt: skip


def made(name: str) -> str | None:
    """Make the environment if it is not there in the state of its pins; the sentence that says why not."""
    folder, stamp = ENVS / name, ENVS / name / ".made"
    pins = (HERE / f"{name}.txt").read_bytes() + (REPO / "pyproject.toml").read_bytes()
    state = blake2b(pins, digest_size=16).hexdigest()
    if stamp.is_file() and stamp.read_text() == state:
        return None
    print(f"making {folder.relative_to(REPO)} (once; up to a few minutes)", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    install = [
        python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", str(HERE / f"{name}.txt"),
        "pytest>=8.4", "-e", f"{REPO}[serve]",
    ]  # fmt: skip
    done = subprocess.run(install, capture_output=True, text=True)
    if done.returncode != 0:
        shutil.rmtree(folder, ignore_errors=True)
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-_LAST_LINES:])
        why = f"test-connect: the packages of {name} could not be installed. Is a package index reachable?"
        return f"{why} pip said:\n{last}"
    stamp.write_text(state)
    return None


if __name__ == "__main__":
    sys.exit(main())
