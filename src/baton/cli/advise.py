"""`baton advise`: four questions, answered by a person, by options or by traces, and the recipe that follows."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from baton.cli.printing import print_json
from baton.compose.advise_traces import Reading, read_answers
from baton.compose.corpus_recipes import installed_recipes, train_line
from baton.compose.runs import traces_at
from baton.corpus.advice import QUESTIONS, ROLES, Advice, AdviceAnswers, advise
from baton.errors import UsageError, nearest
from baton.view.terminal.corpus_tables import named
from baton.view.terminal.fitting import Line
from baton.view.terminal.live import hush
from baton.view.terminal.screen import emit
from baton.view.text import printable

_WORDS: dict[str, tuple[str, ...]] = {name: ROLES if name == "roles" else ("yes", "no") for name in QUESTIONS}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Without traces and options it asks. An option counts for more than what the traces say.\n\n"
        "examples:\n"
        "  baton advise\n"
        "  baton advise runs/sum\n"
        "  baton advise --dynamic yes --bottleneck no --long no --roles heterogeneous"
    )
    parser.add_argument("paths", nargs="*", metavar="TRACE", help="files that hold traces of your team")
    for name, question in QUESTIONS.items():
        parser.add_argument(f"--{name}", metavar="|".join(_WORDS[name]), help=question)
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    given = {name: _word(name, word) for name in QUESTIONS if (word := getattr(args, name)) is not None}
    readings = read_answers(traces_at(*args.paths)) if args.paths else {}
    readings |= {name: Reading(answer=word, why="as you said") for name, word in given.items()}
    unanswered = [name for name in QUESTIONS if name not in readings or readings[name].answer is None]
    for name in unanswered:
        readings[name] = _asked(name, unanswered, readings, args.paths)
    said = {name: reading.answer for name, reading in readings.items()}
    answers = msgspec.convert(
        {name: word if name == "roles" else word == "yes" for name, word in said.items()}, AdviceAnswers
    )
    advice = advise(answers)
    if args.json:
        return print_json({"answers": readings, "advice": advice, "type": train_line(advice.recipe)})
    emit([*_answer_lines(readings), [], *_advice_lines(advice, args.paths)])
    return 0


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


def _advice_lines(advice: Advice, paths: Sequence[str]) -> Iterator[Line]:
    yield from named("credit on", f"{advice.unit}, by the estimator {advice.estimator}", "bold")
    yield from named("recipe", advice.recipe, "bold")
    for reason in advice.reasons:
        yield from named("because", reason)
    for recipe, when in advice.instead.items():
        yield from named("instead", f"{recipe}, {when}")
    if paths:
        command = f"baton credit {shlex.join(paths)} --unit {advice.unit} --estimator {advice.estimator}"
        yield from named("look at it", printable(command), "green")
    if advice.recipe in installed_recipes():
        yield from named("type", train_line(advice.recipe), "green")
    else:
        yield from named("type", f"{train_line(advice.recipe)} (this recipe is not installed here)", "yellow")
