"""`baton advise`: four questions, answered by a person, by options or by traces, and the recipe that follows."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from itertools import count as count_from
from pathlib import Path

import msgspec

from baton.cli import add_trust
from baton.cli.printing import print_json
from baton.compose.advise_traces import Reading, read_answers
from baton.compose.advised_recipe import DraftedRecipe, draft_recipe, look_at
from baton.compose.advised_run import draft_from_run
from baton.compose.again import is_trained
from baton.compose.corpus_recipes import installed_recipes, train_line
from baton.compose.runs import traces_at
from baton.compose.trust import recipe_in
from baton.corpus.advice import QUESTIONS, ROLES, Advice, AdviceAnswers, advise
from baton.errors import UsageError, nearest
from baton.trace.formats.durable import atomic_file
from baton.trace.formats.recognition import run_beside
from baton.trace.trace import Trace, drawn
from baton.view.terminal.corpus_tables import named
from baton.view.terminal.fitting import Line
from baton.view.terminal.live import hush
from baton.view.terminal.screen import emit
from baton.view.text import printable

_WORDS: dict[str, tuple[str, ...]] = {name: ROLES if name == "roles" else ("yes", "no") for name in QUESTIONS}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Without traces and options it asks. An option counts for more than what the traces say. From traces it\n"
        "ends in a recipe for teams like theirs: every choice says what in them led to it.\n\n"
        "examples:\n"
        "  baton advise\n"
        "  baton advise runs/sum --out sum.toml\n"
        "  baton advise --dynamic yes --bottleneck no --long no --roles heterogeneous"
    )
    parser.add_argument("paths", nargs="*", metavar="TRACE", help="files that hold traces of your team")
    for name, question in QUESTIONS.items():
        parser.add_argument(f"--{name}", metavar="|".join(_WORDS[name]), help=question)
    parser.add_argument(
        "--out", metavar="FILE", help="write the recipe that is made of the traces there (.toml)"
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    add_trust(parser)


def run(args: argparse.Namespace) -> int:
    given = {name: _word(name, word) for name in QUESTIONS if (word := getattr(args, name)) is not None}
    place = None if args.out is None else _place(args.out, args.paths)
    traces = traces_at(*args.paths) if args.paths else []
    readings = read_answers(drawn(traces)) if traces else {}
    readings |= {name: Reading(answer=word, why="as you said") for name, word in given.items()}
    unanswered = [name for name in QUESTIONS if name not in readings or readings[name].answer is None]
    for name in unanswered:
        readings[name] = _asked(name, unanswered, readings, args.paths)
    said = {name: reading.answer for name, reading in readings.items()}
    answers = msgspec.convert(
        {name: word if name == "roles" else word == "yes" for name, word in said.items()}, AdviceAnswers
    )
    advice = advise(answers)
    draft = _draft(traces, advice, args) if traces else None
    if draft is not None and place is not None:
        with atomic_file(place) as file:  # whole or not there: the same words can be typed again
            file.write(draft.toml.encode())
    following = train_line(advice.recipe) if draft is None else _following(draft, args)
    if args.json:
        return print_json({"answers": readings, "advice": advice, "drafted": draft, "type": following})
    look = look_at(traces, advice, args.paths, trust=args.trust) if traces else None
    emit([*_answer_lines(readings), [], *_advice_lines(advice, look)])
    if draft is not None:
        emit(_draft_lines(draft, place, following))
    return 0


def _draft(traces: Sequence[Trace], advice: Advice, args: argparse.Namespace) -> DraftedRecipe:
    """The recipe for more of such runs; of a training run, its own but for the credit."""
    name = ", ".join(args.paths)
    runs = {run_beside(path) for path in args.paths}
    if len(runs) == 1 and (run := runs.pop()) is not None and all(map(is_trained, traces)):
        return draft_from_run(traces, recipe_in(run, trust=args.trust), advice, name)
    return draft_recipe(traces, advice, name, trust=args.trust)


def _place(out: str, paths: Sequence[str]) -> Path:
    """Where the recipe goes: a new file."""
    if not paths:
        raise UsageError(
            "--out is for the recipe made of traces, and none are given. Type: baton advise TRACE --out FILE"
        )
    if not out.endswith(".toml"):
        raise UsageError(
            f"--out {out}: a recipe's file ends in .toml. Type: --out {shlex.quote(out + '.toml')}"
        )
    if Path(out).exists():
        raise UsageError(f"{out} is there already, and nothing is overwritten. Give another --out.")
    return Path(out)


def _following(draft: DraftedRecipe, args: argparse.Namespace) -> str:
    """What to type next: keep the recipe, fill it in, or train by it."""
    if args.out is None:
        return f"{shlex.join(['baton', 'advise', *args.paths])} --out advised.toml"
    out = _free(Path("runs") / Path(args.out).stem)
    train = shlex.join(["baton", "train", args.out, "--out", str(out), *(["--trust"] if draft.trust else [])])
    return f"fill in what is missing, then: {train}" if draft.missing else train


def _free(place: Path) -> Path:
    """A folder where nothing is yet, for training refuses one that holds runs."""
    trained = place.with_name(f"{place.name}-trained")
    numbered = (place.with_name(f"{trained.name}-{n}") for n in count_from(2))
    return next(each for each in chain((place, trained), numbered) if not each.exists())


def _draft_lines(draft: DraftedRecipe, place: Path | None, following: str) -> Iterator[Line]:
    yield []
    if place is None:
        lines = (printable(line) for line in draft.toml.splitlines())
        yield from ([(line, "dim" if line.startswith("#") else "")] for line in lines)
        yield []
    else:
        yield from named("written", str(place), "bold")
    for each in draft.missing:
        yield from named("missing", printable(each), "yellow")
    yield from named("type", printable(following), "green")


def _word(name: str, word: str) -> str:
    if word not in _WORDS[name]:
        raise UsageError(f"--{name} {word!r}: {nearest(word, _WORDS[name])}")
    return word


def _asked(
    name: str, unanswered: Sequence[str], readings: Mapping[str, Reading], paths: Sequence[str]
) -> Reading:
    """The answer of the person at the terminal."""
    if not sys.stdin.isatty():
        options = " ".join(f"--{each} {'|'.join(_WORDS[each])}" for each in unanswered)
        why = "".join(f" ({readings[each].why})" for each in unanswered if each in readings)
        command = shlex.join(["baton", "advise", *paths])
        raise UsageError(f"not answered: {', '.join(unanswered)}{why}. Type: {command} {options}")
    hush(for_good=True)
    while True:
        try:
            word = input(f"{QUESTIONS[name]} [{'/'.join(_WORDS[name])}] ").strip().lower()
        except EOFError:
            raise UsageError(f"not answered: {name}. Type: --{name} {'|'.join(_WORDS[name])}") from None
        close = [known for known in _WORDS[name] if word and known.startswith(word)]
        if len(close) == 1:
            return Reading(answer=close[0], why="as you said")
        print(nearest(word, _WORDS[name]), file=sys.stderr)


def _answer_lines(readings: Mapping[str, Reading]) -> Iterator[Line]:
    for name, question in QUESTIONS.items():
        yield [(question, "")]
        yield [(f"  {readings[name].answer}  ", "bold"), (printable(readings[name].why), "dim")]


def _advice_lines(advice: Advice, look: str | None) -> Iterator[Line]:
    yield from named("credit on", f"{advice.unit}, by the estimator {advice.estimator}", "bold")
    yield from named("recipe", advice.recipe, "bold")
    for reason in advice.reasons:
        yield from named("because", reason)
    for recipe, when in advice.instead.items():
        yield from named("instead", f"{recipe}, {when}")
    if look is not None:
        yield from named("look at it", printable(look), "green")
        return
    if advice.recipe in installed_recipes():
        yield from named("type", train_line(advice.recipe), "green")
    else:
        yield from named("type", f"{train_line(advice.recipe)} (this recipe is not installed here)", "yellow")
