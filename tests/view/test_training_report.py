"""The report of a training run: everything it must show, nothing it must not do, at every stage of a run."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs
from viewer_runs import BIDI, IMAGE, SCRIPT, hostile, training_run

from baton.trace.formats import read
from baton.trace.formats.sqlite.store import write_store
from baton.view.report.run_figures import TrainingRun, read_run, standings
from baton.view.report.svg import Series, areas, curves
from baton.view.report.training_report import report_page, write_report
from baton.view.terminal.training_result import course, outcome, worth
from baton.view.text import percent

SECTIONS = (
    "comparison", "ledger", "learning", "decisions", "credit", "team", "updates", "warnings", "cost", "examples",
    "recipe",
)  # fmt: skip


class Page(HTMLParser):
    """What a browser would make of a page: its elements, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, key, value or "") for key, value in attrs]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, key, value or "") for key, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def checked(text: str) -> Page:
    """A page that reaches for nothing, runs nothing, and whose elements all end."""
    page = Page(text)
    assert page.open == []
    assert not {"script", "img", "iframe", "object", "embed", "link", "form", "base", "image", "use"} & set(
        page.tags
    )
    for _, key, value in page.attributes:
        assert not key.startswith("on")
        assert key not in ("src", "srcset", "style", "action", "xlink:href")
        if key == "href":
            assert value.startswith("#")
    assert "url(" not in text
    assert "@import" not in text
    policy = next(value for _, key, value in page.attributes if key == "content")
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    return page


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("report") / "run"
    training_run(place, steps=5, episodes=2)
    (place / "recipe.toml").write_text('about = "x"\n[train]\nsteps = 5\n')
    return place


@pytest.fixture
def bare(folder: Path) -> TrainingRun:
    """A run that has only begun."""
    return structs.replace(read_run(folder), steps=[], evals=[])


def test_the_report_has_every_section_and_needs_nothing(folder: Path) -> None:
    place = write_report(folder)
    page = checked(place.read_text())
    ids = {value for tag, key, value in page.attributes if key == "id"}
    assert ids == set(SECTIONS)
    for words in ("before-0", "after-0", "steps = 5", "serial-collapse", "Return on held-out instances rose"):
        assert words in page.text
    assert page.tags.count("svg") >= 15


def test_phases_and_their_steps_are_told(folder: Path) -> None:
    run = read_run(folder)
    told = run.told | {"phases": [{"name": "lead <b>", "first": 1}, {"name": "joint", "first": 4}, "odd"]}
    assert "lead <b> 1–3 → joint 4–5" in checked(report_page(structs.replace(run, told=told))).text
    assert "phases" not in checked(report_page(run)).text


def test_a_run_that_has_only_begun_says_so(bare: TrainingRun) -> None:
    page = checked(report_page(bare))
    assert "The trained team has not been measured yet." in page.text
    assert "Nobody has been measured yet." in page.text
    assert page.text.count("not measured") >= 10
    assert "0.000" not in page.text.split("Example traces")[0]


def test_without_a_solver_regret_is_not_measured_and_never_zero(folder: Path) -> None:
    run = read_run(folder)
    run = structs.replace(
        run,
        told=run.told | {"optimum": None, "floor": None},
        steps=[step | {"regret": None} for step in run.steps],
        evals=[line | {"regret": None} for line in run.evals if line["who"] != "optimum"],
    )
    page = checked(report_page(run))
    assert page.text.count("this task has no exact solver") == 2
    said = "\n".join("".join(text for text, _ in line) for line in outcome(run))
    assert "not measured" in said
    assert "0.000" not in said


def test_a_run_that_diverged_says_why(folder: Path) -> None:
    run = read_run(folder)
    told = run.told | {"status": "diverged", "why": f"the loss is nan {SCRIPT}"}
    steps = [
        *run.steps,
        run.steps[-1] | {"loss": float("nan"), "return": {"mean": float("inf"), "half": None}},
    ]
    page = checked(report_page(structs.replace(run, told=told, steps=steps)))
    assert "the loss is nan" in page.text
    assert "nan" not in "".join(value for _, key, value in page.attributes if key in ("d", "x", "y", "width"))


def test_text_of_a_run_is_shown_and_cannot_act(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "run"
    (place / "traces").mkdir(parents=True)
    hostile(tmp_path / "hostile.jsonl")
    bad = read(tmp_path / "hostile.jsonl")
    named = [
        structs.replace(bad, header=structs.replace(bad.header, trace_id=name))
        for name in ("before-0", "after-0")
    ]
    write_store(named, place / "traces" / "run.db", durability="process")
    told = {
        "recipe": SCRIPT,
        "about": IMAGE,
        "task": BIDI,
        "status": f'"{SCRIPT}',
        "started": IMAGE,
        "steps": "many",
    }
    (place / "run.json").write_text(json.dumps(told))
    (place / "recipe.toml").write_text(f"# {SCRIPT}{IMAGE}{BIDI}")
    line: dict[str, Any] = {
        "step": SCRIPT, "rewards": {IMAGE: 1.0, SCRIPT: 0.5}, "credit": {IMAGE: {"mean_abs": 1.0, "num": 1}, "x": 3},
        "return": IMAGE, "regret": [1], "warnings": [{"monitor": SCRIPT, "message": IMAGE}, 7],
    }  # fmt: skip
    (place / "metrics.jsonl").write_text(json.dumps(line) + "\n" + "[]\n" + '{"step": 2')
    (place / "evals.jsonl").write_text(json.dumps({"who": SCRIPT, "return": {"mean": 1.0}}) + "\n")
    page = checked(write_report(place).read_text())
    assert SCRIPT in page.text
    assert IMAGE in page.text
    assert "\u202e" not in page.text
    assert "\x1b" not in page.text
    assert "1 line of the run" in page.text


def test_steps_between_which_nothing_was_measured_are_a_gap() -> None:
    values = [1.0, 2.0, None, 3.0, 4.0]
    drawn = curves("x", [1, 2, 3, 4, 5], [Series(name="a", values=values)])
    assert drawn.count('<path class="line') == 2
    assert "a not measured" in drawn
    stacked = areas(
        "x", [1, 2, 3, 4, 5], [Series(name="a", values=values), Series(name="b", values=[1.0] * 5)]
    )
    assert stacked.count('<path class="area') == 4
    assert "not measured" in curves("x", [1, 2], [Series(name="a", values=[None, None])])


@example([5e-324], True)
@given(
    st.lists(st.one_of(st.none(), st.floats(-1e9, 1e9)), min_size=1, max_size=400),
    st.booleans(),
)
def test_plots_stay_in_their_frame(values: list[float | None], zero: bool) -> None:
    places = [float(n) for n in range(len(values))]
    half = [None if value is None else abs(value) / 10 for value in values]
    drawn = curves("x", places, [Series(name="a", values=values, half=half)], zero=zero)
    for path in re.findall(r' d="M([^"Z]*)', drawn):
        for point in path.split("L"):
            x, y = map(float, point.split(","))
            assert 45 <= x <= 429
            assert 9 <= y <= 181
    assert drawn.count("<title>") <= 202


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e6)), max_size=300))
def test_a_course_is_short_and_blank_where_nothing_was_measured(values: list[float | None]) -> None:
    drawn = course(values)
    assert len(drawn) <= 24
    if len(values) <= 24:
        assert [char == " " for char in drawn] == [value is None for value in values]


def test_standings_are_in_order_and_the_last_measurement_counts(folder: Path) -> None:
    run = read_run(folder)
    again = {"who": "team", "step": 9, "episodes": 3, "return": {"mean": 0.5, "half": None}}
    rows = standings(structs.replace(run, evals=[*run.evals, again, {"who": "best-of-4"}]))
    assert [row.who for row in rows] == [
        "untrained",
        "trained",
        "best of 4, untrained",
        "single agent",
        "optimum",
    ]
    assert (rows[1].step, rows[1].mean, rows[1].half) == (9, 0.5, None)
    assert rows[2].mean is None


def test_the_single_agent_has_both_token_counts_or_a_reason(folder: Path) -> None:
    run = read_run(folder)
    line = {"who": "alone-3", "step": 5, "episodes": 2, "return": {"mean": 0.5, "half": 0.1}, "tokens": 310.0}
    line |= {"invalid": 0.0, "failed": 0.0, "one_try": 0.25, "team_tokens": 300.0}
    why = {"who": "alone", "step": 5, "episodes": 0, "why": f"nobody {SCRIPT}"}
    told = "310 tokens an episode against the trained team's 300; one try is worth 0.250"
    for each, words in ((line, f"alone, best of 3: {told}"), (why, f"not measured: nobody {SCRIPT}")):
        measured = structs.replace(run, evals=[*run.evals, each])
        assert words in checked(report_page(measured)).text
        said = ["".join(text for text, _ in line) for line in outcome(measured)]
        assert any(words in line for line in said)
        assert [row.who for row in standings(measured)].index("single agent") == 3
    assert not any("exact" in line for line in said if line.startswith("alone"))


def test_failed_calls_have_a_column_where_there_are_any(folder: Path) -> None:
    run = read_run(folder)
    header = ["".join(text for text, _ in line) for line in outcome(run)][2]
    assert not header.endswith("failed")
    broken = structs.replace(run, evals=[line | {"failed": 1.5} for line in run.evals])
    said = ["".join(text for text, _ in line) for line in outcome(broken)]
    assert said[2].endswith("failed")
    assert said[3].endswith("1.50")
    assert "<th>failed" not in report_page(run)
    assert "<th>failed" in report_page(broken)


def test_regret_per_choice_is_not_measured_where_there_was_no_choice(folder: Path) -> None:
    run = read_run(folder)
    first = {"regret": {"spawn": 0.5}, "episodes": 4, "credit": {"spawn": {"num": 8}}}
    steps: list[dict[str, Any]] = [first, first | {"credit": {}}, first | {"regret": None}]
    assert structs.replace(run, steps=steps).regret_per_choice("spawn") == [0.25, None, None]


def test_a_decision_that_is_not_made_any_more_is_said_to_be(folder: Path) -> None:
    run = read_run(folder)
    assert run.given_up() == []
    credit = {"stop": {"mean_abs": 0.1, "num": 4}}
    collapsed = structs.replace(run, steps=[*run.steps[:-1], run.steps[-1] | {"credit": credit}])
    assert collapsed.given_up() == ["spawn"]
    assert "spawn is not made any more" in checked(report_page(_with_regret(collapsed))).text
    said = ["".join(text for text, _ in line) for line in outcome(_with_regret(collapsed))]
    assert [line.split()[0] for line in said if line.endswith("not made any more")] == ["spawn"]


def _with_regret(run: TrainingRun) -> TrainingRun:
    parts = {
        "total": 0.3,
        "spawn": 0.1,
        "delegate": 0.05,
        "communicate": 0.05,
        "aggregate": 0.05,
        "stop": 0.05,
    }
    return structs.replace(run, evals=[line | {"regret": parts} for line in run.evals])


def test_rounding_leaves_no_minus_before_a_zero() -> None:
    assert worth(-1e-16) == "0.000"
    assert worth(-0.25) == "-0.250"
    assert worth(None) == "–"


def test_what_is_not_quite_gone_never_reads_as_gone() -> None:
    assert [percent(1.0, now) for now in (0.0, 1e-6, 0.005, 0.03, 2.0)] == [
        "-100 %",
        "-99.9 %",
        "-99.5 %",
        "-97 %",
        "+100 %",
    ]
