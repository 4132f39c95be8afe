"""What lies outside a sandbox while code tries to get out: secrets, files, sockets, a process; and whether it did.

An attack that sees itself through prints ESCAPED; what it changed or reached outside is noticed here. So an attack
counts as held only if neither it nor the world saw anything.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import psutil
from msgspec import Struct

PRELUDE = '''
import ctypes, errno, os, platform, socket, struct, sys, threading, time
W = {world}
_N = {{k: (int(x), int(a)) for k, x, a in (each.split(":") for each in {numbers!r}.split())}}
_libc = ctypes.CDLL(None, use_errno=True)
def escaped(what="it went through"): print("ESCAPED:", what, flush=True)
def call(name, *args):
    number = _N[name][platform.machine() == "aarch64"]
    if number < 0: return -1
    got = _libc.syscall(number, *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return got
def reached(name, *args):
    """The kernel was asked: it did it, or refused for another reason than that one may not."""
    ctypes.set_errno(0)
    got = call(name, *args)
    if _N[name][platform.machine() == "aarch64"] >= 0 and (got >= 0 or ctypes.get_errno() not in (1, 13, 38)):
        escaped(f"{{name}} gave {{got}}, {{os.strerror(ctypes.get_errno())}}")
    return got
'''

NUMBERS = """
open_by_handle_at:304:265 name_to_handle_at:303:264 openat2:437:437 truncate:76:45 fanotify_init:300:262
inotify_init1:294:26 inotify_add_watch:254:27 socket:41:198 connect:42:203 bind:49:200 sendmsg:46:211
sendmmsg:307:269 io_uring_setup:425:425 fork:57:-1 vfork:58:-1 clone:56:220 clone3:435:435 execve:59:221
execveat:322:281 memfd_create:319:279 kill:62:129 tkill:200:130 tgkill:234:131 rt_sigqueueinfo:129:138
rt_tgsigqueueinfo:297:240 pidfd_open:434:434 pidfd_getfd:438:438 pidfd_send_signal:424:424 ptrace:101:117
process_vm_readv:310:270 process_vm_writev:311:271 process_madvise:440:440 kcmp:312:272 get_robust_list:274:100
sched_setaffinity:203:122 setpriority:141:140 ioprio_set:251:30 migrate_pages:256:238 move_pages:279:239
perf_event_open:298:241 bpf:321:280 userfaultfd:323:282 add_key:248:217 request_key:249:218 keyctl:250:219
mount:165:40 umount2:166:39 unshare:272:97 setns:308:268 chroot:161:51 pivot_root:155:41 fsopen:430:430
open_tree:428:428 move_mount:429:429 personality:135:92 init_module:175:105 finit_module:313:273
kexec_load:246:104 reboot:169:142 swapon:167:224 sethostname:170:161 settimeofday:164:170 clock_settime:227:112
syslog:103:116 acct:163:89 quotactl:179:60 seccomp:317:277 iopl:172:-1 modify_ldt:154:-1 shmget:29:194
semget:64:190 msgget:68:186 mq_open:240:180 timer_create:222:107 setsid:112:157 setpgid:109:154
setuid:105:146 setxattr:188:5 utimensat:280:88 memfd_secret:447:447 capset:126:91 mlockall:151:230
set_mempolicy:238:237 vmsplice:278:75
"""

SYSV_KEY_BYTES = 4096


class Seen(Struct, frozen=True, kw_only=True):
    """What one attack printed and how it ended."""

    output: str
    duration_s: float
    stopped: str | None


class World:
    """Everything outside, made once and put back in order before every attack."""

    def __init__(self) -> None:
        self.token = f"SECRET{secrets.token_hex(8)}"
        self.folder = Path(tempfile.mkdtemp(prefix="baton-outside-"))
        self.contacts: list[str] = []
        self._closing = ExitStack()
        self._over = threading.Event()
        self._victim: subprocess.Popen[bytes] | None = None
        self.marker = ""

    def __enter__(self) -> Self:
        os.environ["BATON_ESCAPE_SECRET"] = self.token
        self.port, self.udp_port = self._listen_inet()
        self._listen(socket.SOCK_STREAM, str(self.folder / "stream.sock"))
        self._listen(socket.SOCK_DGRAM, str(self.folder / "datagram.sock"))
        self._listen(socket.SOCK_STREAM, f"\0{self.token}.stream")
        self._listen(socket.SOCK_DGRAM, f"\0{self.token}.datagram")
        self._share_memory()
        self._kept_open = (self.folder / "kept-open").open("w+")
        self._kept_open.write(self.token)
        self._kept_open.flush()
        os.set_inheritable(self._kept_open.fileno(), True)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._closing.close()
        if self._victim is not None:
            self._victim.kill()
            self._victim.wait()
        self._kept_open.close()
        if self._segment >= 0:
            ctypes.CDLL(None).shmctl(self._segment, 0, None)
        self._shared_file.unlink(missing_ok=True)
        del os.environ["BATON_ESCAPE_SECRET"]
        shutil.rmtree(self.folder, ignore_errors=True)

    def _share_memory(self) -> None:
        self._key = secrets.randbelow(2**30) + 1
        self._segment = ctypes.CDLL(None).shmget(self._key, SYSV_KEY_BYTES, 0o1600)
        self._shared_file = Path("/dev/shm") / self.token.lower()
        self._shared_file.write_text(self.token)

    def _listen_inet(self) -> tuple[int, int]:
        stream = self._closing.enter_context(socket.create_server(("127.0.0.1", 0)))
        datagram = self._closing.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        datagram.bind(("127.0.0.1", 0))
        self._serve(stream, "tcp")
        self._serve(datagram, "udp")
        return stream.getsockname()[1], datagram.getsockname()[1]

    def _listen(self, kind: int, address: str) -> None:
        opened = self._closing.enter_context(socket.socket(socket.AF_UNIX, kind))
        opened.bind(address)
        if kind == socket.SOCK_STREAM:
            opened.listen()
        self._serve(opened, address.replace("\0", "@"))

    def _serve(self, opened: socket.socket, name: str) -> None:
        opened.settimeout(0.1)

        def wait() -> None:
            while not self._over.is_set():
                try:
                    if opened.type == socket.SOCK_STREAM:
                        opened.accept()[0].close()
                    else:
                        opened.recvmsg(1000, 1000)
                except TimeoutError:
                    continue
                except OSError:
                    return
                self.contacts.append(name)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        self._closing.callback(thread.join)
        self._closing.callback(self._over.set)

    def prepare(self) -> dict[str, Any]:
        """Put everything in order; what an attack is told of it."""
        self.contacts.clear()
        self.marker = str(512 * 2**20 + 4096 * secrets.randbelow(2**20))
        if (self.folder / "new").is_dir():
            (self.folder / "new").rmdir()
        (self.folder / "new").unlink(missing_ok=True)
        (self.folder / "secret").write_text(self.token)
        (self.folder / "keep").write_text("kept")
        (self.folder / "keep").chmod(0o644)
        os.utime(self.folder / "keep", (10**9, 10**9))
        (self.folder / "module_outside.py").write_text(f"said = {self.token!r}\n")
        (self.folder / "there").mkdir(exist_ok=True)
        with suppress(FileExistsError):
            (self.folder / "link").symlink_to(self.token)
            os.mkfifo(self.folder / "pipe")
        self._before = self._files()
        if self._victim is None or self._victim.poll() is not None:
            self._victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(10**6)"])
        return {
            "folder": str(self.folder), "secret": str(self.folder / "secret"), "keep": str(self.folder / "keep"),
            "port": self.port, "udp_port": self.udp_port, "victim": self._victim.pid, "baton": os.getpid(),
            "stream": str(self.folder / "stream.sock"), "datagram": str(self.folder / "datagram.sock"),
            "abstract": f"\0{self.token}.stream", "abstract_datagram": f"\0{self.token}.datagram",
            "key": self._key, "shared": self._shared_file.name, "nap": self.marker, "home": str(Path.home()),
            "kept_fd": self._kept_open.fileno(), "child": "sandbox_child.py", "start": time.time(),
        }  # fmt: skip

    def _files(self) -> dict[str, Any]:
        found = {}
        for path in sorted(self.folder.rglob("*")):
            about = path.lstat()
            found[path.name] = (about.st_size, about.st_mode, about.st_uid, about.st_mtime_ns, about.st_nlink)
        return found

    def judge(self, seen: Seen, wall_seconds: float) -> str:
        """Whether anything got out: "held", or "ESCAPED: " and what."""
        lines = [line for line in seen.output.splitlines() if line.startswith("ESCAPED")]
        if lines:
            return lines[0]
        found = self._noticed() or (self.contacts and f"it reached {self.contacts[0]}")
        if not found and (self.token in seen.output or self.token[::-1] in seen.output):
            found = "it printed the secret"
        if not found and seen.duration_s > wall_seconds + 10:
            found = f"it ran for {seen.duration_s:.0f} s of {wall_seconds:g}"
        return f"ESCAPED: {found}" if found else "held"

    def _noticed(self) -> str | None:
        time.sleep(0.02)  # a datagram, a signal
        if self._victim is not None and self._victim.poll() is not None:
            return "it ended another process"
        if self._files() != self._before:
            return "it changed files outside"
        if (self.folder / "keep").read_text() != "kept":
            return "it wrote to a file outside"
        left = self._survivors()
        return f"it outlived its run: {left}" if left else None

    def _survivors(self) -> str | None:
        """A process that carries this attack's marker in its command line, well after its end."""
        for wait in (0.0, 0.3, 0.7):
            time.sleep(wait)
            found = [
                p
                for p in psutil.process_iter(["cmdline"])
                if any(self.marker in w for w in p.info["cmdline"] or ())
            ]
            found = [p for p in found if _runs(p)]
            if not found:
                return None
        said = ", ".join(str(p.pid) for p in found)
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        return said


def _runs(process: psutil.Process) -> bool:
    try:
        return process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def program(code: str, told: dict[str, Any]) -> str:
    """An attack as it is run: what it is told, what helps it, and what it does. Refusals are nothing to it."""
    body = "\n".join(f"    {line}" for line in code.splitlines())
    head = PRELUDE.format(world=repr(json.loads(json.dumps(told))), numbers=" ".join(NUMBERS.split()))
    caught = "(OSError, ValueError, MemoryError, ImportError, RuntimeError, AttributeError, EOFError)"
    return f"{head}\ntry:\n{body}\nexcept {caught} as error:\n    print(type(error).__name__, str(error)[:200])\n"


def unconfined(code: str, marker: str, seconds: float = 10.0) -> Seen:
    """The same program without a sandbox: what shows that an attack is one."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        # The marker is in its command line, as it is in a sandbox's. What it starts may keep its output open.
        with Path(folder, "output").open("w+b") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", code, marker],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=folder,
                start_new_session=True, close_fds=False,
            )  # fmt: skip
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
            process.kill()
            process.wait()
            output.seek(0)
            said = output.read().decode(errors="replace")
        return Seen(output=said, duration_s=time.monotonic() - began, stopped=None)


Runner = Callable[[str, str], Seen]
"""A program and its marker -> what came of it."""
