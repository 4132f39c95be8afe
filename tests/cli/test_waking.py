"""Ctrl-C is heard by a loop that sleeps, whichever thread the system hands the signal to."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading

import pytest
from cli_runs import hears_interrupts

from baton.compose.waking import run_waking

TO_ANOTHER_THREAD = """
import asyncio, signal, threading, time
from baton.compose.waking import run_waking

def interrupt():
    time.sleep(0.3)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    run_waking(asyncio.sleep(60))
except KeyboardInterrupt:
    print("heard")
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs a POSIX system")
def test_a_signal_to_another_thread_ends_the_sleep() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TO_ANOTHER_THREAD],
        capture_output=True,
        text=True,
        check=True,
        timeout=40,
        preexec_fn=hears_interrupts,
    )
    assert done.stdout == "heard\n"


def test_it_gives_the_result_and_leaves_signals_as_they_were() -> None:
    before = signal.set_wakeup_fd(-1)
    assert run_waking(asyncio.sleep(0, "done")) == "done"
    assert signal.set_wakeup_fd(before) == -1


def test_beside_the_main_thread_it_runs_as_well() -> None:
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(run_waking(asyncio.sleep(0, "done"))))
    thread.start()
    thread.join()
    assert found == ["done"]
