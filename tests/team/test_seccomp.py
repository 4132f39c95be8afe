"""The filter of system calls, run by an interpreter written here: what it answers, for both machines."""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path

import pytest

from baton.team.tools.seccomp import ALLOWED, ARCHITECTURES, MACHINES, NEWEST_KNOWN, filter_code

ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSE, ABSENT = 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
X86 = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
GENERIC = Path("/usr/include/asm-generic/unistd.h")


def answer(machine: str, number: int, *args: int, architecture: int | None = None) -> int:
    """What classic BPF gives for one system call: include/uapi/linux/seccomp.h, bpf(4)."""
    given = architecture or ARCHITECTURES[MACHINES.index(machine)]
    data = struct.pack("<iIQ6Q", number - (number >> 31 << 32), given, 0, *(*args, *[0] * (6 - len(args))))
    code = filter_code(machine)
    lines = [struct.unpack_from("<HBBI", code, at) for at in range(0, len(code), 8)]
    at, accumulator = 0, 0
    while True:
        what, then, otherwise, value = lines[at]
        at += 1
        if what == 0x06:
            return value
        if what == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif what == 0x54:
            accumulator &= value
        else:
            holds = {
                0x15: accumulator == value,
                0x25: accumulator > value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[what]
            at += then if holds else otherwise


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def numbers(machine: str) -> dict[str, int]:
    """The kernel's own list, where its headers are installed."""
    path = X86 if machine == "x86_64" else GENERIC
    if not path.exists():
        pytest.skip(f"there is no {path}")
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", path.read_text())
    names = {name: int(number) for name, number in found}
    if machine == "aarch64":
        names["newfstatat"] = names.pop("fstatat")
    return names


def test_its_numbers_are_the_kernels(machine: str) -> None:
    known = numbers(machine)
    for name, both in ALLOWED.items():
        number = both[MACHINES.index(machine)]
        assert number is None or known[name] == number, name


def test_whatever_is_not_listed_is_refused(machine: str) -> None:
    listed = {both[MACHINES.index(machine)] for both in ALLOWED.values()}
    by_arguments = (
        *(
            "clone",
            "clone3",
            "prlimit64",
            "sendto",
            "socketpair",
            "fcntl",
            "ioctl",
            "prctl",
            "open",
            "openat",
        ),
        *("clock_gettime", "clock_getres", "clock_nanosleep", "getpgid", "getsid", "getpriority"),
        *("sched_getaffinity", "sched_getparam", "sched_getscheduler", "sched_rr_get_interval"),
    )
    known = numbers(machine)
    skipped = {known[name] for name in by_arguments if name in known}
    for number in set(range(NEWEST_KNOWN + 1)) - skipped:
        assert answer(machine, number) == (ALLOW if number in listed else REFUSE), number


@pytest.mark.parametrize(
    "name",
    [
        *("socket", "connect", "bind", "sendmsg", "sendmmsg", "io_uring_setup", "execve", "execveat", "kill"),
        *("tgkill", "pidfd_open", "ptrace", "process_vm_readv", "mount", "unshare", "setns", "bpf", "keyctl"),
        *(
            "inotify_init1",
            "inotify_add_watch",
            "fanotify_init",
            "userfaultfd",
            "perf_event_open",
            "memfd_create",
        ),
        *(
            "shmget",
            "mq_open",
            "setsid",
            "setpgid",
            "truncate",
            "fchmod",
            "timer_create",
            "personality",
            "mincore",
        ),
    ],
)
def test_refused(machine: str, name: str) -> None:
    assert answer(machine, numbers(machine)[name], 0) == REFUSE


@pytest.mark.parametrize(
    ("name", "args", "allowed"),
    [
        ("clone", (0x3D0F00,), True),  # pthread_create
        ("clone", (0x3D0F00 | 0x40000000,), False),  # with a network namespace
        ("clone", (0x3D0F00 | 0x2000,), False),  # traced
        ("clone", (17,), False),  # fork
        ("prlimit64", (0,), True),
        ("prlimit64", (4321,), False),
        ("socketpair", (1, 1), True),
        ("socketpair", (1, 1 | 0x80000 | 0x800), True),
        ("socketpair", (1, 2), False),
        ("socketpair", (1, 5 | 0x80000), False),
        ("socketpair", (2, 1), False),
        ("sendto", (3, 0, 1, 0, 0, 0), True),
        ("sendto", (3, 0, 1, 0, 0x7F00_1234, 110), False),
        ("sendto", (3, 0, 1, 0, 0x7F00_0000_0000, 110), False),
        *(("fcntl", (3, command), True) for command in (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030)),
        *(("fcntl", (3, command), False) for command in (8, 9, 10, 11, 15, 16, 1024, 1026, 1031, 1033)),
        *(("ioctl", (0, command), True) for command in (0x5401, 0x541B, 0x5421)),
        *(("ioctl", (0, command), False) for command in (0x5412, 0x541C, 0x8901, 0x8902, 0x5452, 0x540E)),
        ("prctl", (15,), True),
        *(("prctl", (option,), False) for option in (1, 4, 22, 36, 38, 0x59616D61)),
        ("openat", (-100, 0, 0), True),
        ("openat", (-100, 0, 0o1001), True),
        ("openat", (-100, 0, 0o1000), False),  # cuts what is only read
        ("clock_gettime", (3,), True),
        ("clock_gettime", ((~4321 << 3 | 2) & 0xFFFFFFFF,), False),
        ("getsid", (0,), True),
        ("getsid", (4321,), False),
        ("getpriority", (0, 4321), False),
    ],
)
def test_arguments_decide(machine: str, name: str, args: tuple[int, ...], allowed: bool) -> None:
    given = tuple(each & 0xFFFF_FFFF_FFFF_FFFF for each in args)
    assert answer(machine, numbers(machine)[name], *given) == (ALLOW if allowed else REFUSE)


def test_what_is_newer_or_foreign(machine: str) -> None:
    assert answer(machine, NEWEST_KNOWN + 1) == ABSENT
    assert answer(machine, 0x40000000 + 39) == ABSENT  # x32
    assert answer(machine, 435) == ABSENT  # clone3, so that the C library takes clone
    assert answer(machine, 0, architecture=0x40000003) == KILL  # i386
    assert filter_code("sparc") == b""
