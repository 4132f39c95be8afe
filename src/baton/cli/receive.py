"""`baton receive --out DIR`: take spans over HTTP from programs that speak OpenTelemetry, and keep their traces."""

from __future__ import annotations

import argparse
import shlex
import signal
import threading
from pathlib import Path

from baton.cli import add_repeated
from baton.cli.printing import remark, say
from baton.connect.receive import DEFAULT_PORT, ReceiveLimits, Receiver
from baton.errors import UsageError
from baton.view.terminal.live import live_line
from baton.view.text import count

_ALSO = ("log records", "secrets redacted", "spans rejected", "metrics requests dropped", "refused")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "example:\n"
        "  baton receive --out runs/mine\n"
        "and in another terminal\n"
        f"  OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:{DEFAULT_PORT} python my_agents.py\n"
        "  baton view runs/mine\n\n"
        "Every request is written down in DIR/received before it is answered; baton import reads that folder, too."
    )
    parser.add_argument("--out", metavar="DIR", required=True, help="where traces and requests are kept")
    parser.add_argument(
        "--port",
        metavar="N",
        type=int,
        default=DEFAULT_PORT,
        help=f"0: any that is free (default {DEFAULT_PORT})",
    )
    parser.add_argument("--host", metavar="ADDRESS", default="127.0.0.1", help="127.0.0.1, localhost or ::1")
    parser.add_argument(
        "--max-megabytes",
        metavar="N",
        type=int,
        default=32,
        help="the largest request that is taken (default 32)",
    )
    add_repeated(
        parser, "--redact", "PATTERN",
        "take out secrets (keys, tokens, passwords) and what matches; `secrets` for those alone",
    )  # fmt: skip
    parser.add_argument(
        "--without-payloads",
        action="store_true",
        help="keep nothing that was said: names, times and counts alone",
    )


def run(args: argparse.Namespace) -> int:
    out = Path(args.out)
    if args.max_megabytes < 1:
        raise UsageError(f"--max-megabytes is {args.max_megabytes}; expected 1 or more.")
    limits = ReceiveLimits(body_bytes=args.max_megabytes * 2**20)
    receiver = Receiver(
        out,
        host=args.host,
        port=args.port,
        limits=limits,
        redact=args.redact or None,
        payloads=not args.without_payloads,
    )
    stopping = threading.Event()
    before = {one: signal.signal(one, lambda *_: stopping.set()) for one in (signal.SIGINT, signal.SIGTERM)}
    say(f"receiving  {receiver.address}/v1/traces, into {out}")
    say(
        f"send       OTEL_EXPORTER_OTLP_ENDPOINT={receiver.address} OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
    )
    say(f"look       baton view {shlex.quote(str(out))}; Ctrl-C ends it")
    server = threading.Thread(target=receiver.serve, name="baton-http", daemon=True)
    server.start()
    try:
        with live_line(lambda _: _so_far(receiver), logged=False):
            while not stopping.wait(0.2):
                if not server.is_alive():
                    break
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        receiver.stop()
        server.join()
        receiver.close()
    say(f"received   {_so_far(receiver)}, in {out}")
    for why in receiver.complaints:
        remark(f"refused: {why}")
    return 0


def _so_far(receiver: Receiver) -> str:
    counts = receiver.counts
    parts = [count(counts["requests"], "request"), count(counts["spans"], "span")]
    parts += [f"{counts[what]:,} {what}" for what in _ALSO if counts[what]]
    return f"{', '.join(parts)}; {count(receiver.kept.num_traces, 'trace')}"
