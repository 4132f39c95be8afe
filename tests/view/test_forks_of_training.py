"""Four people, or one who presses four times: forks of a training run by a real `baton view`, all at once."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from baton.cli import main
from baton.trace.formats import read_all

pytest.importorskip("torch", reason="no torch here: pip install 'baton-rl[train]'")
CHANGES = {
    "warm.episodes": 200, "warm.steps": 80, "warm.rows": 16, "train.steps": 1, "rollout.groups": 2,
    "rollout.group_size": 2, "eval.episodes": 4,
}  # fmt: skip
SMALL = [word for name, value in CHANGES.items() for word in ("--set", f"{name}={value}")]


def test_four_forks_at_once_are_all_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = tmp_path / "runs" / "grpo"
    assert main(["train", "grpo", *SMALL, "--out", str(run)]) == 0
    trace, at = next(
        (trace, event.id)
        for trace in read_all(run / "traces" / "run.db")
        for event in trace.events
        if event.call is not None and event.status == "ok" and event.decision != "none"
    )
    code = "import sys; from baton.cli import main; sys.exit(main())"
    viewer = subprocess.Popen(
        [sys.executable, "-u", "-c", code, "view", str(run), "--fork", "--port", "0"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert viewer.stdout is not None
        said = viewer.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/", said)
        assert address is not None, said
        home, key = address[0], said.split("?key=")[1].split()[0]
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        opener.open(f"{home}?key={key}", timeout=60).read()
        token = msgspec.json.decode(opener.open(f"{home}api/setup", timeout=60).read())["token"]

        def post(number: int) -> Any:
            query = urlencode({"place": run.name, "id": trace.trace_id, "job": f"job{number}"})
            body = msgspec.json.encode({"at": at, "do": "drop"})
            headers = {"origin": home.rstrip("/"), "x-baton-token": token}
            asked = urllib.request.Request(f"{home}api/fork?{query}", body, headers)
            try:
                return msgspec.json.decode(opener.open(asked, timeout=300).read())
            except urllib.error.HTTPError as error:
                return msgspec.json.decode(error.read())

        with ThreadPoolExecutor(4) as pool:
            made = list(pool.map(post, range(4)))
        assert [each.get("error") for each in made] == [None] * 4
        assert len({each["id"] for each in made}) == 1  # the same change, the same draws
        assert viewer.poll() is None
        assert post(9)["id"] == made[0]["id"], "the viewer still answers"
    finally:
        viewer.terminate()
        viewer.wait()
        if viewer.stdout is not None:
            viewer.stdout.close()
