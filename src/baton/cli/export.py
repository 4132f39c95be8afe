"""`baton export FORMAT TRACE --out FILE`: traces as one file for others.

The viewer's page (html) or any format of text, of one trace; or the rows that other trainers learn from, of all traces
that have credits; or a trained policy of a run of `baton train`, as a folder that transformers opens.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from baton.cli import add_repeated, add_trace, add_trust
from baton.cli.printing import remark, say
from baton.cli.view import attached
from baton.compose.again import need_torch
from baton.compose.runs import one_trace, traces_at
from baton.compose.training_rows import ROW_FORMATS, training_rows, write_rows
from baton.compose.trust import recipe_in
from baton.errors import UsageError
from baton.trace.formats import encode
from baton.trace.formats.durable import atomic_file, refuse_written
from baton.view.text import count
from baton.view.web.export_page import export_html


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n"
        "  baton export html runs/sum --out sum.html\n"
        "  baton export atif runs/sum --out sum.atif.json\n"
        "  baton export otlp runs/sum --endpoint http://127.0.0.1:6006/v1/traces\n"
        "  baton export trl-rows credited.jsonl --out rows.parquet\n"
        "  baton export model runs/flagship --out flagship-model    # what was trained, for transformers"
    )
    parser.add_argument(
        "format",
        metavar="FORMAT",
        help="html: one page, with everything in it; atif, otlp, or another format of baton convert; "
        "trl-rows or verl-rows: token ids, masks and advantages from the credits of all traces, Parquet or .jsonl; "
        "prime-rows: the same as a file of prime-rl's, .bin; model: a trained policy of a folder of baton train",
    )
    add_trace(parser, "a file that holds traces")
    parser.add_argument("--without-payloads", action="store_true", help="leave out what was said")
    parser.add_argument("--estimator", metavar="E", help="of rows: whose credits, where there are several")
    parser.add_argument("--out", metavar="FILE", help="where it goes")
    parser.add_argument("--endpoint", metavar="URL", help="of otlp: send the spans there, such as to Phoenix")
    add_repeated(parser, "--header", "NAME=VALUE", "of an endpoint that wants to know who sends")
    parser.add_argument(
        "--policy", metavar="NAME", help="of a model: which policy, where several were trained"
    )
    parser.add_argument(
        "--step", type=int, metavar="N", help="of a model: after which step (default: the last kept)"
    )
    add_trust(parser)
    parser.add_argument("--force", action="store_true", help="replace FILE if it is there")


def run(args: argparse.Namespace) -> int:
    if args.endpoint is not None:
        return _send(args)
    if args.out is None:
        raise UsageError("--out is missing: where it goes. Type: --out FILE")
    out = Path(args.out)
    if args.format == "model":
        return _model(args, out)
    for name in ("policy", "step"):
        if getattr(args, name) is not None:
            raise UsageError(f"--{name} is for a trained model; leave it out for {args.format}.")
    if out.is_dir():
        raise UsageError(f"{out} is a directory. Give a file: --out {out / 'trace.html'}")
    if out.exists() and not args.force:
        raise UsageError(f"{out} is already there. Type: --force to replace it")
    refuse_written(out, "--out")
    if args.format in ROW_FORMATS:
        return _rows(args, out)
    if args.estimator is not None:
        raise UsageError(
            f"--estimator is for rows ({', '.join(ROW_FORMATS)}); leave it out for {args.format}."
        )
    trace = one_trace(args.path, args.trace)
    if args.without_payloads:
        trace = trace.without_payloads()
    if args.format == "html":
        page = export_html(trace, attached()).encode()
    else:
        page = b"".join(encode(trace, args.format))
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(out) as file:
        file.write(page)
    say(f"wrote    {out}: {len(trace.events):,} events, {len(page):,} bytes")
    return 0


def _model(args: argparse.Namespace, out: Path) -> int:
    if out.exists():
        raise UsageError(f"{out} is already there. Give a new folder: --out {out.parent / (out.name + '-2')}")
    recipe_in(Path(args.path), trust=args.trust)  # refused before torch is loaded
    need_torch()
    from baton.compose.trained_model import export_model

    name, step, size = export_model(
        Path(args.path), out, policy=args.policy, step=args.step, trust=args.trust, progress=remark
    )
    say(f"wrote    {out}: policy {name} after step {step}, {size:,} weights")
    return 0


def _send(args: argparse.Namespace) -> int:
    from baton.connect.writers.otlp import send

    if args.format != "otlp" or args.out is not None:
        raise UsageError("--endpoint takes spans, and no file: baton export otlp TRACE --endpoint URL")
    headers = {}
    for given in args.header:
        name, equals, value = given.partition("=")
        if not equals or not name:
            raise UsageError(f"--header is {given!r}; expected NAME=VALUE.")
        headers[name] = value
    trace = one_trace(args.path, args.trace)
    num_spans = send(trace.without_payloads() if args.without_payloads else trace, args.endpoint, headers)
    say(f"sent     {trace.trace_id}: {count(num_spans, 'span')} to {args.endpoint}")
    return 0


def _rows(args: argparse.Namespace, out: Path) -> int:
    if args.without_payloads:
        raise UsageError("rows hold token ids and no payloads; leave --without-payloads out.")
    traces = traces_at(args.path) if args.trace is None else [one_trace(args.path, args.trace)]
    credited = [trace for trace in traces if trace.credits]
    if not credited:
        raise UsageError(
            f"{args.path}: no trace in there has credits, which rows are made of. Type: baton credit "
            f"{shlex.quote(args.path)} --estimator group --out credited.jsonl, then export credited.jsonl."
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    count = write_rows(training_rows(credited, estimator=args.estimator), args.format, out)
    if not count:
        raise UsageError(
            f"{args.path}: no call in there has token ids, so there is no row. "
            "Use an engine that gives them (table, torch)."
        )
    if len(credited) < len(traces):
        remark(f"{len(traces) - len(credited):,} of {len(traces):,} traces have no credits and give no rows")
    say(f"wrote    {out}: {count:,} rows of {len(credited):,} traces")
    return 0
