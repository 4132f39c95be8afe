"""Stands for a run of a program that was forked elsewhere (`preload_server.py`): hands over its streams, and waits.

    python preload_client.py SOCKET file.py argument ...

It ends with the program's exit code; a program that a signal ended is told as 128 and its number, as shells do.
"""

import array
import json
import os
import socket
import sys
from pathlib import Path


def main() -> int:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.connect(sys.argv[1])
    told = json.dumps({"argv": sys.argv[2:], "env": dict(os.environ), "cwd": str(Path.cwd())}) + "\n"
    streams = array.array("i", [0, 1, 2])
    data = told.encode("utf-8", "surrogateescape")
    sent = server.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
    server.sendall(data[sent:])
    for number in (0, 1):  # the program has them; ours would hold its pipes open
        os.close(number)
    code = server.recv(64)
    if not code:
        sys.stderr.write("the process that this run was forked from has ended\n")
        return 70
    number = int(code)
    return number if number >= 0 else 128 - number


if __name__ == "__main__":
    sys.exit(main())
