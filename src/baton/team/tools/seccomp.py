"""The system calls that sandboxed code may make, as a seccomp filter; every other call is refused.

An allow list: what is not named here fails with EPERM (calls newer than this list with ENOSYS, so that libraries
fall back on older ones). It holds for one process with threads, on files that are open to it, without sockets but
the pair that asyncio wakes itself with. Made in the parent, installed by the child in itself as its last act, so that
not even `execve` has to be allowed; a filter given to bubblewrap (--seccomp) would have to allow that.
Sources: seccomp(2), bpf(2), include/uapi/linux/filter.h.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Sequence
from functools import cache

MACHINES = ("x86_64", "aarch64")
ARCHITECTURES = (0xC000003E, 0xC00000B7)
NEWEST_KNOWN = 462
"""Calls added to the kernel after this list was made have higher numbers."""

# name -> (x86_64, aarch64); None where the machine has no such call.
ALLOWED: dict[str, tuple[int, int | None]] = {
    # files that are open
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67),
    "pwrite64": (18, 68), "preadv": (295, 69), "pwritev": (296, 70), "preadv2": (327, 286), "pwritev2": (328, 287),
    "close": (3, 57), "close_range": (436, 436), "lseek": (8, 62), "dup": (32, 23), "dup2": (33, None),
    "dup3": (292, 24), "pipe": (22, None), "pipe2": (293, 59), "flock": (73, 32), "fsync": (74, 82),
    "fdatasync": (75, 83), "ftruncate": (77, 46), "fallocate": (285, 47), "fadvise64": (221, 223),
    "copy_file_range": (326, 285), "sendfile": (40, 71), "splice": (275, 76), "getdents": (78, None),
    "getdents64": (217, 61), "fstat": (5, 80), "fstatfs": (138, 44),
    # files by name: Landlock, or what is mounted, says which
    "stat": (4, None), "lstat": (6, None), "newfstatat": (262, 79), "statx": (332, 291), "statfs": (137, 43),
    "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439), "readlink": (89, None),
    "readlinkat": (267, 78), "getcwd": (79, 17), "chdir": (80, 49), "fchdir": (81, 50), "mkdir": (83, None),
    "mkdirat": (258, 34), "rmdir": (84, None), "unlink": (87, None), "unlinkat": (263, 35), "rename": (82, None),
    "renameat": (264, 38), "renameat2": (316, 276), "link": (86, None), "linkat": (265, 37), "symlink": (88, None),
    "symlinkat": (266, 36), "mknod": (133, None), "mknodat": (259, 33), "umask": (95, 166),
    # memory
    "mmap": (9, 222), "munmap": (11, 215), "mprotect": (10, 226), "mremap": (25, 216), "madvise": (28, 233),
    "brk": (12, 214), "msync": (26, 227),
    # threads
    "exit": (60, 93), "exit_group": (231, 94), "futex": (202, 98), "futex_waitv": (449, 449),
    "set_robust_list": (273, 99), "set_tid_address": (218, 96), "rseq": (334, 293), "sched_yield": (24, 124),
    "sched_get_priority_max": (146, 125), "sched_get_priority_min": (147, 126), "getcpu": (309, 168),
    "restart_syscall": (219, 128),
    # signals that one gets
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
    "rt_sigsuspend": (130, 133), "rt_sigtimedwait": (128, 137), "sigaltstack": (131, 132), "pause": (34, None),
    "alarm": (37, None), "setitimer": (38, 103), "getitimer": (36, 102),
    # waiting
    "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72),
    "epoll_create": (213, None), "epoll_create1": (291, 20), "epoll_ctl": (233, 21), "epoll_wait": (232, None),
    "epoll_pwait": (281, 22), "epoll_pwait2": (441, 441), "eventfd": (284, None), "eventfd2": (290, 19),
    "timerfd_create": (283, 85), "timerfd_settime": (286, 86), "timerfd_gettime": (287, 87),
    "signalfd": (282, None), "signalfd4": (289, 74), "nanosleep": (35, 101), "wait4": (61, 260), "waitid": (247, 95),
    # the pair of sockets
    "recvfrom": (45, 207), "shutdown": (48, 210), "getsockname": (51, 204), "getpeername": (52, 205),
    "getsockopt": (55, 209),
    # facts about oneself and the machine
    "getpid": (39, 172), "getppid": (110, 173), "gettid": (186, 178), "getuid": (102, 174), "geteuid": (107, 175),
    "getgid": (104, 176), "getegid": (108, 177), "getgroups": (115, 158), "getresuid": (118, 148),
    "getresgid": (120, 150), "getpgrp": (111, None), "getrlimit": (97, 163), "setrlimit": (160, 164),
    "getrusage": (98, 165), "times": (100, 153), "sysinfo": (99, 179), "uname": (63, 160), "time": (201, None),
    "gettimeofday": (96, 169), "getrandom": (318, 278),
}  # fmt: skip

# Calls whose arguments decide.
CLONE, CLONE3, PRLIMIT, SOCKETPAIR, SENDTO = (56, 220), (435, 435), (302, 261), (53, 199), (44, 206)
FCNTL, IOCTL, PRCTL, OPEN, OPENAT = (72, 25), (16, 29), (157, 167), (2, None), (257, 56)
CLOCKS = ((228, 113), (229, 114), (230, 115))  # clock_gettime, clock_getres, clock_nanosleep
OWN_FIRST = ((121, 155), (124, 156), (204, 123), (143, 121), (145, 120), (148, 127))
"""getpgid, getsid, sched_getaffinity, _getparam, _getscheduler, _rr_get_interval: of oneself, not of others."""
OWN_SECOND = ((140, 141),)
"""getpriority: likewise, and the process is its second argument."""

THREAD = 0x10000
THREAD_FLAGS = 0x7D0F00
"""All that the C library asks of `clone` for a thread; no namespace, no tracing, no other parent."""
# Descriptors, flags, locks. Not F_SETOWN, F_SETSIG, F_NOTIFY, F_SETLEASE: they make the kernel signal a process.
FCNTL_COMMANDS = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032)
# Is it a terminal, how wide, how much is there to read, does it block, is it closed on exec.
IOCTL_COMMANDS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# PR_SET_NAME, PR_GET_NAME, PR_SET_VMA (glibc names its memory). Not PR_SET_PDEATHSIG: one dies with Baton.
PRCTL_OPTIONS = (15, 16, 0x53564D41)
UNIX, STREAM, STREAM_FLAGS = 1, 1, 0x80800
TRUNCATE, ACCESS_MODE = 0x200, 0x3
LAST_CLOCK = 15
"""Above it (as an unsigned number) are the clocks of other processes."""

Line = tuple[int, int, int, int]

_LOAD, _EQUAL, _ABOVE, _AT_LEAST, _ANY_BIT, _AND, _GIVE = 0x20, 0x15, 0x25, 0x35, 0x45, 0x54, 0x06
_NUMBER, _ARCHITECTURE = 0, 4
_ALLOW: Line = (_GIVE, 0, 0, 0x7FFF0000)
_KILL: Line = (_GIVE, 0, 0, 0x80000000)
_REFUSE: Line = (_GIVE, 0, 0, 0x00050000 | errno.EPERM)
_ABSENT: Line = (_GIVE, 0, 0, 0x00050000 | errno.ENOSYS)


@cache
def filter_code(machine: str) -> bytes:
    """The filter for a machine, as the kernel takes it: eight bytes a line. Empty where there is none for it."""
    if machine not in MACHINES:
        return b""
    return b"".join(struct.pack("HBBI", *line) for line in _program(MACHINES.index(machine)))


def _program(machine: int) -> list[Line]:
    lines: list[Line] = [
        *((_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, ARCHITECTURES[machine]), _KILL),
        *((_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, NEWEST_KNOWN + 1), _ABSENT),
        *((_EQUAL, 0, 1, CLONE3[machine]), _ABSENT),  # the C library then takes clone
    ]
    for numbers, rule in _rules():
        number = numbers[machine]
        if number is not None:
            lines += [(_EQUAL, 0, len(rule), number), *rule]
    for numbers in ALLOWED.values():
        number = numbers[machine]
        if number is not None:
            lines += [(_EQUAL, 0, 1, number), _ALLOW]
    return [*lines, _REFUSE]


def _rules() -> Iterable[tuple[tuple[int, int | None], Sequence[Line]]]:
    """Per call, what its arguments have to be. A rule always ends in an answer."""
    other = ~THREAD_FLAGS & 0xFFFFFFFF
    yield CLONE, (_argument(0), (_ANY_BIT, 0, 1, THREAD), (_ANY_BIT, 0, 1, other), _REFUSE, _ALLOW)
    yield PRLIMIT, _only(0, (0,))
    yield SENDTO, (_argument(4), (_EQUAL, 0, 3, 0), _argument(4, 4), (_EQUAL, 0, 1, 0), _ALLOW, _REFUSE)
    plain = (_AND, 0, 0, ~STREAM_FLAGS & 0xFFFFFFFF)
    yield (
        SOCKETPAIR,
        (
            *(
                _argument(0),
                (_EQUAL, 0, 4, UNIX),
                _argument(1),
                plain,
                (_EQUAL, 0, 1, STREAM),
                _ALLOW,
                _REFUSE,
            ),
        ),
    )
    yield FCNTL, _only(1, FCNTL_COMMANDS)
    yield IOCTL, _only(1, IOCTL_COMMANDS)
    yield PRCTL, _only(0, PRCTL_OPTIONS)
    for call, flags in ((OPEN, 1), (OPENAT, 2)):
        # To cut a file that one may only read: Landlock before its third version does not see it.
        yield (
            call,
            (_argument(flags), (_ANY_BIT, 0, 1, TRUNCATE), (_ANY_BIT, 0, 1, ACCESS_MODE), _ALLOW, _REFUSE),
        )
    for call in CLOCKS:
        yield call, (_argument(0), (_ABOVE, 0, 1, LAST_CLOCK), _REFUSE, _ALLOW)
    for call in OWN_FIRST:
        yield call, _only(0, (0,))
    for call in OWN_SECOND:
        yield call, _only(1, (0,))


def _argument(index: int, offset: int = 0) -> Line:
    """Load the lower half of an argument (the upper at offset 4): both machines are little-endian."""
    return (_LOAD, 0, 0, 16 + 8 * index + offset)


def _only(index: int, values: Sequence[int]) -> tuple[Line, ...]:
    """Allowed with one of these as an argument."""
    return (
        _argument(index),
        *((_EQUAL, len(values) - k, 0, value) for k, value in enumerate(values)),
        _REFUSE,
        _ALLOW,
    )
