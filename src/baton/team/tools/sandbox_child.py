"""The inside of the sandbox: confines its own process, then runs the code on standard input.

Started as a script by `baton.team.tools.sandbox`, one process per run; imports nothing of Baton. Each
layer is tried, and those in force are reported on a pipe before any of the code runs; where one is missing that
was needed, none of it runs. A layer once in force cannot be lifted from inside: all are kernel state (but "audit",
which is only a hindrance). No pathlib: importing it would lengthen every start by a fifth.
Sources: seccomp(2), landlock(7), capabilities(7), namespaces(7), mount(2).
"""

# ruff: noqa: PTH109, PTH110, PTH112
from __future__ import annotations

import ast
import ctypes
import errno
import json
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable, Iterable
from typing import Any

__all__: list[str] = []

LIBC = ctypes.CDLL(None, use_errno=True)


def seccomp(code: bytes) -> bool:
    """Install the filter that was made for this machine; empty: there is none for it."""
    if sys.platform != "linux" or not code or sys.maxsize < 2**32:
        return False
    buffer = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
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


def is_alone() -> bool:
    """Whether bubblewrap did what it was asked for: processes are counted anew, and others' mounts are gone."""
    return os.getpid() <= 2 and not os.path.exists("/proc/self")


def own_folder(folder: str, limits: dict[str, int]) -> bool:
    """Inside bubblewrap: put a folder over its own that the kernel keeps to a number of files, too."""
    if not is_alone():
        return False  # these are others' mounts: nothing is laid over them
    no_suid_device_or_program = ctypes.c_ulong(2 | 4 | 8)
    size = f"size={limits['disk_bytes']},nr_inodes={limits['num_files'] + 1},mode=700"  # one is the folder itself
    where = folder.encode()
    if LIBC.mount(b"tmpfs", where, b"tmpfs", no_suid_device_or_program, size.encode()) != 0:
        return False
    os.chdir(folder)
    return True


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
    if sys.platform == "linux" and "bubblewrap" not in settings["layers"]:  # which sees to it by itself
        LIBC.prctl(1, signal.SIGKILL, 0, 0, 0)  # die with the parent
        if os.getppid() != settings["parent"]:
            raise SystemExit("Baton is gone already")
    tried: dict[str, Callable[[], bool]] = {
        "bubblewrap": is_alone,
        "quota": lambda: own_folder(settings["folder"], settings["limits"]),
        "namespaces": namespaces,
        "limits": lambda: limit(settings["limits"]),
        "capabilities": drop_capabilities,
        "landlock": lambda: landlock(settings["readable"], os.getcwd()),
        "seccomp": lambda: seccomp(bytes.fromhex(settings["filter"])),
    }
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
    if not set(settings["needed"]) <= set(force):
        raise SystemExit(1)  # weaker than was asked for: nothing of the code runs
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
