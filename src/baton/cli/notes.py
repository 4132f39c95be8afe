"""`baton notes PLACE`: what people say of traces, beside them; and rewards, right answers or a test set made of it."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import structs

from baton.cli import add_repeated
from baton.cli.out_file import check_free
from baton.cli.printing import aligned, print_json, remark, say
from baton.compose.runs import one_trace, traces_at
from baton.errors import UsageError
from baton.trace.formats import write
from baton.trace.formats.durable import atomic_file
from baton.trace.formats.recognition import detect
from baton.trace.notes import Note, Notebook, as_gold, as_rewards, as_test
from baton.trace.trace import Trace
from baton.view.terminal.screen import emit
from baton.view.text import count, number, printable

_MADE = ("rewards", "gold", "tests")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Notes lie in NAME.notes beside PLACE, and never in a trace. The viewer shows and writes the same.\n\n"
        "examples:\n"
        "  baton notes runs/sum\n"
        '  baton notes runs/sum --add "read the wrong shard" --event orchestrator#1 --label bad --score=-1\n'
        "  baton notes runs/sum --answer 939\n"
        "  baton notes runs/sum --remove 3f9a1c22d4e0\n"
        "  baton notes runs/sum --rewards noted.jsonl --worth good=1 --worth bad=-1\n"
        "  baton notes runs/sum --tests tests.jsonl       # for the task jsonl\n"
        "  baton notes runs/sum --gold gold.json          # for baton reward --gold and baton measure --gold"
    )
    parser.add_argument(
        "place", metavar="PLACE", help="where traces are: a file, a store, a folder, a training run"
    )
    parser.add_argument(
        "--trace", metavar="ID", help="which trace; of a note, needed where there are several"
    )
    parser.add_argument("--event", metavar="ID", help="of a note: on this event of it")
    parser.add_argument(
        "--add", metavar="TEXT", help="write a note; a label, a score or an answer alone is one, too"
    )
    add_repeated(parser, "--label", "WORD", "of a note: a label")
    parser.add_argument("--score", type=float, metavar="X", help="of a note: what it was worth")
    parser.add_argument("--answer", metavar="TEXT", help="of a note on a trace: what the right answer is")
    parser.add_argument(
        "--change", metavar="NOTE", help="give this note other words, labels, score or answer"
    )
    parser.add_argument("--remove", metavar="NOTE", help="take this note away")
    parser.add_argument(
        "--rewards", metavar="OUT", help="write the traces with the scores of notes as rewards"
    )
    add_repeated(parser, "--worth", "LABEL=X", "of rewards: what a label is worth where nobody gave a score")
    parser.add_argument(
        "--tests", metavar="OUT", help="write a test set: questions, and the answers that notes gave"
    )
    parser.add_argument(
        "--gold", metavar="OUT", help="write the right answers by trace, as --gold takes them"
    )
    parser.add_argument("--force", action="store_true", help="replace what is at OUT")
    parser.add_argument("--json", action="store_true", help="the notes as JSON")


def run(args: argparse.Namespace) -> int:
    place = Path(args.place)
    detect(place) if not (place / "run.json").is_file() else None  # says so where no trace is
    book = Notebook(place)
    making = [name for name in _MADE if getattr(args, name) is not None]
    if len(making) + (args.change is not None) + (args.remove is not None) > 1:
        raise UsageError("give one of --change, --remove, --rewards, --tests and --gold.")
    if making:
        return _make(args, place, book, making[0])
    if args.remove is not None:
        gone = book.remove(args.remove)
        say(f"removed  {gone.id}")
        return 0
    words = {
        name: value
        for name, value in {
            "text": args.add, "labels": tuple(args.label) or None, "score": args.score, "answer": args.answer,
        }.items()
        if value is not None
    }  # fmt: skip
    if args.change is not None:
        note = book.change(args.change, **words)
        say(f"changed  {note.id} in {book.path}")
        return 0
    if words:
        return _add(args, place, book, words)
    if args.event is not None:
        raise UsageError("--event is where a note is to be. Type: --add TEXT as well")
    return _list(args, book)


def _add(args: argparse.Namespace, place: Path, book: Notebook, words: Mapping[str, object]) -> int:
    trace = one_trace(str(_traces(place)), args.trace)
    if args.event is not None:
        trace.event(args.event)  # says so where there is none
        if args.answer is not None:
            raise UsageError("--answer is the right answer of the whole trace; leave --event out.")
    note = book.add(trace.trace_id, event=args.event, **words)  # type: ignore[arg-type]  # as argparse typed them
    say(f"noted    {note.id} in {book.path}")
    return 0


def _list(args: argparse.Namespace, book: Notebook) -> int:
    notes = [note for note in book.all() if args.trace in (None, note.trace)]
    if args.json:
        return print_json([structs.asdict(note) for note in notes])
    if not notes:
        say(f"no notes. Type: baton notes {shlex.quote(args.place)} --add TEXT")
        return 0
    rows: list[tuple[str, ...]] = [("note", "on", "labels", "score", "said", "by", "when")]
    rows += [_row(note) for note in notes]
    emit(aligned(rows, right=(3,)))
    return 0


def _row(note: Note) -> tuple[str, ...]:
    said = printable(note.text) + (
        f" [right answer: {printable(note.answer)}]" if note.answer is not None else ""
    )
    return (
        note.id,
        printable(note.trace + (f" {note.event}" if note.event else "")),
        ", ".join(map(printable, note.labels)),
        "" if note.score is None else number(note.score),
        said.strip(),
        printable(note.by),
        printable(note.at),
    )


def _make(args: argparse.Namespace, place: Path, book: Notebook, what: str) -> int:
    out = Path(getattr(args, what))
    if what == "rewards":
        check_free(str(out), args.force)
    elif out.exists() and not args.force:
        raise UsageError(f"{out} is there already. Type --force to replace it, or give another --{what}.")
    notes = book.all()
    if what == "gold":
        gold = as_gold(notes)
        _some(gold, "a right answer. Type: --answer TEXT")
        _put(out, msgspec.json.format(msgspec.json.encode(gold), indent=2) + b"\n")
        say(f"wrote    {out}: {count(len(gold), 'right answer')}")
        return 0
    traces = traces_at(_traces(place))
    return _rewards(args, traces, notes, out) if what == "rewards" else _tests(traces, notes, out)


def _rewards(args: argparse.Namespace, traces: Sequence[Trace], notes: Sequence[Note], out: Path) -> int:
    worth = dict(map(_worth, args.worth))
    found = {trace.trace_id: as_rewards(trace, notes, worth) for trace in traces}
    num = sum(map(len, found.values()))
    _some(num, "a score, or a label that --worth says something of. Type: --score X")
    write([trace.with_records(rewards=found[trace.trace_id]) for trace in traces], out)
    say(f"wrote    {out}: {count(num, 'reward')} on {count(sum(map(bool, found.values())), 'trace')}")
    return 0


def _tests(traces: Sequence[Trace], notes: Sequence[Note], out: Path) -> int:
    answered = as_gold(notes)
    lines = [line for trace in traces if (line := as_test(trace, notes)) is not None]
    _some(lines, "a right answer to a question that its trace holds. Type: --answer TEXT")
    _put(out, b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    if len(lines) < len(answered):
        remark(
            f"baton notes: {len(answered) - len(lines):,} more have an answer, but their traces hold no question."
        )
    say(f"wrote    {out}: {count(len(lines), 'question')} with an answer")
    return 0


def _worth(given: str) -> tuple[str, float]:
    label, equals, text = given.rpartition("=")
    try:
        if equals and label:
            return label, float(text)
    except ValueError:
        pass
    raise UsageError(f"--worth is {given!r}; expected LABEL=NUMBER, such as --worth bad=-1")


def _some(found: object, what: str) -> None:
    if not found:
        raise UsageError(f"no note there gives {what}")


def _put(out: Path, content: bytes) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(out) as file:
        file.write(content)


def _traces(place: Path) -> Path:
    """Where a place keeps its traces: a training run in a folder of its own."""
    return place / "traces" if (place / "run.json").is_file() else place
