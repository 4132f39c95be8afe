"""The inside of the sandbox: confines its own process, then runs the code on standard input.

Started as a script by `baton.team.tools.sandbox`, one process per run; imports nothing of Baton. Each
layer is tried, and those in force are reported on a pipe before any of the code runs. A layer once
in force cannot be lifted from inside: all are kernel state (but "audit", which is only a hindrance).
No pathlib: importing it would lengthen every start by a fifth.
Sources: seccomp(2), landlock(7), capabilities(7), namespaces(7).
"""

# ruff: noqa: PTH109, PTH112, PTH120
from __future__ import annotations

import ast
import ctypes
import errno
import json
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Iterable
from typing import Any

__all__: list[str] = []

# name -> (x86_64, aarch64); None where the machine has no such call. What the code may not ask of
# the kernel: sockets, other processes, signals, and what reaches past Landlock or outlives the run.
DENIED: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198), "io_uring_setup": (425, 425),
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424), "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "process_madvise": (440, 440), "kcmp": (312, 272),
    "perf_event_open": (298, 241), "bpf": (321, 280), "userfaultfd": (323, 282),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "personality": (135, 92),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119), "sched_setparam": (142, 118), "sched_setattr": (314, 274),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "unshare": (272, 97), "setns": (308, 268), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "setsid": (112, 157), "setpgid": (109, 154),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180),
    "memfd_create": (319, 279), "memfd_secret": (447, 447),
}  # fmt: skip
CLONE, CLONE3, PRLIMIT = (56, 220), (435, 435), (302, 261)
NEWEST_KNOWN = 462  # calls added to the kernel after this list was made
AUDIT_ARCH = (0xC000003E, 0xC00000B7)
MACHINES = ("x86_64", "aarch64")

LIBC = ctypes.CDLL(None, use_errno=True)


def seccomp() -> bool:
    """Refuse the calls above, every process but this one, and other processes' limits."""
    if sys.platform != "linux" or platform.machine() not in MACHINES or sys.maxsize < 2**32:
        return False
    machine = MACHINES.index(platform.machine())
    load, equal, at_least, any_bit, give = 0x20, 0x15, 0x35, 0x45, 0x06
    number, arch, first_argument = 0, 4, 16
    allow, kill, refuse = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM
    absent = 0x00050000 | errno.ENOSYS
    program = [
        *((load, 0, 0, arch), (equal, 1, 0, AUDIT_ARCH[machine]), (give, 0, 0, kill)),
        *((load, 0, 0, number), (at_least, 0, 1, NEWEST_KNOWN + 1), (give, 0, 0, absent)),
        *((equal, 0, 1, CLONE3[machine]), (give, 0, 0, absent)),  # glibc then falls back to clone
        # clone only with CLONE_THREAD; prlimit only of oneself
        *((equal, 0, 4, CLONE[machine]), (load, 0, 0, first_argument), (any_bit, 1, 0, 0x10000)),
        *((give, 0, 0, refuse), (give, 0, 0, allow)),
        *((equal, 0, 4, PRLIMIT[machine]), (load, 0, 0, first_argument), (equal, 1, 0, 0)),
        *((give, 0, 0, refuse), (give, 0, 0, allow)),
    ]
    for numbers in DENIED.values():
        if (denied := numbers[machine]) is not None:
            program += [(equal, 0, 1, denied), (give, 0, 0, refuse)]
    program.append((give, 0, 0, allow))
    code = b"".join(struct.pack("HBBI", *line) for line in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    return bool(LIBC.prctl(38, 1, 0, 0, 0) == 0 and LIBC.prctl(22, 2, head, 0, 0) == 0)


def landlock(readable: Iterable[str], writable: str) -> bool:
    """Open to reading only what Python itself needs, and to writing only the working directory."""
    create, add_rule, restrict = 444, 445, 446
    if sys.platform != "linux":
        return False
    abi = LIBC.syscall(create, None, ctypes.c_size_t(0), 1)
    if abi < 1:
        return False
    handled = (1 << (13 + (abi >= 2) + (abi >= 3) + (abi >= 5))) - 1
    # Files; TCP bind and connect; abstract sockets and signals to the outside.
    rules = struct.pack("QQQ", handled, 0b11, 0b11)[: 24 if abi >= 6 else 16 if abi >= 4 else 8]
    ruleset = LIBC.syscall(create, rules, ctypes.c_size_t(len(rules)), 0)
    if ruleset < 0:
        return False
    read_file, read_directory, write_file = 1 << 2, 1 << 3, 1 << 1
    grants = [(path, read_file | (read_directory if os.path.isdir(path) else 0)) for path in readable]
    grants += [("/dev/null", read_file | write_file), (writable, handled & ~1)]
    for path, access in grants:
        try:
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # not on this machine, so nothing to open
        failed = LIBC.syscall(add_rule, ruleset, 1, struct.pack("=Qi", access, opened), 0)
        os.close(opened)
        if failed:
            return False
    failed = LIBC.prctl(38, 1, 0, 0, 0) or LIBC.syscall(restrict, ruleset, 0)
    os.close(ruleset)
    return not failed


def namespaces() -> bool:
    """A network and an IPC namespace of its own, both empty."""
    user, network, ipc = 0x10000000, 0x40000000, 0x08000000
    if sys.platform != "linux":
        return False
    return bool(LIBC.unshare(user | network | ipc) == 0 or LIBC.unshare(network | ipc) == 0)


def drop_capabilities() -> bool:
    """For a parent that runs as root: keep the user id, lose its powers."""
    if sys.platform != "linux":
        return False
    return bool(LIBC.capset(struct.pack("=Ii", 0x20080522, 0), bytes(24)) == 0)


def audit() -> bool:
    """Where the kernel refuses nothing: refuse inside the interpreter. Determined code gets around it."""
    refused = (
        *("socket.", "subprocess.", "ctypes.", "pty."),
        *("os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.kill"),
    )

    def hook(event: str, args: tuple[Any, ...]) -> None:
        native = event == "import" and args[0] in ("_ctypes", "_socket", "_posixsubprocess")
        if native or event.startswith(refused):
            raise PermissionError(errno.EPERM, f"{event} is not allowed in the sandbox")

    for name in ("_ctypes", "ctypes"):
        sys.modules.pop(name, None)
    sys.addaudithook(hook)
    return True


def limit(limits: dict[str, int]) -> bool:
    """Cap what one process may take. A hard limit cannot be raised again without capabilities."""
    wanted = {
        resource.RLIMIT_CPU: limits["cpu_seconds"],
        resource.RLIMIT_AS: limits["memory_bytes"],
        resource.RLIMIT_FSIZE: limits["file_bytes"],
        resource.RLIMIT_NOFILE: 64,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: limits["num_threads"],
    }
    for what, soft in wanted.items():
        hard = soft + 1 if what == resource.RLIMIT_CPU else soft  # SIGXCPU first, SIGKILL a second later
        _, ceiling = resource.getrlimit(what)
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        try:
            resource.setrlimit(what, (soft, hard))
        except (ValueError, OSError):
            if what != resource.RLIMIT_AS or sys.platform == "linux":  # macOS refuses RLIMIT_AS
                raise
    return True


def confine(settings: dict[str, Any]) -> list[str]:
    """Every layer that takes hold, innermost last; those named in settings are tried."""
    readable = [
        *{sys.base_prefix, sys.base_exec_prefix, os.path.dirname(os.__file__)},
        *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache"),
        *("/usr/share/zoneinfo", "/etc/localtime", "/dev/urandom", "/dev/random", "/dev/zero"),
    ]
    tried = {
        "namespaces": namespaces,
        "limits": lambda: limit(settings["limits"]),
        "capabilities": drop_capabilities,
        "landlock": lambda: landlock(readable, os.getcwd()),
        "seccomp": seccomp,
    }
    if sys.platform == "linux":
        LIBC.prctl(1, signal.SIGKILL, 0, 0, 0)  # die with the parent
    force = [name for name, layer in tried.items() if name in settings["layers"] and layer()]
    if "seccomp" not in force and audit():
        force.append("audit")
    return force


def run(code: str) -> None:
    """Run as a notebook cell: a last expression is shown."""
    tree = ast.parse(code, "<code>")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    space: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
    exec(compile(tree, "<code>", "exec"), space)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), "<code>", "eval"), space)
        if value is not None:
            print(repr(value))


def main() -> None:
    settings = json.loads(sys.argv[1])
    code = sys.stdin.read()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a TextIOWrapper, here
    force = confine(settings)
    os.write(settings["status_fd"], ",".join(force).encode())
    os.close(settings["status_fd"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.argv = [""]
    try:
        run(code)
    except Exception as error:
        # The frames of this file say nothing to whoever wrote the code.
        trace = error.__traceback__
        while trace and trace.tb_frame.f_code.co_filename != "<code>":
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.stdout.flush()
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
