"""The whole report: bands, baselines, checklist, and what must hold of every trace."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from chaos import TOPOLOGY_NAMES, make_team
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from msgspec import structs
from planted import event, is_right, team_of, trace_of
from strategies import arbitrary_traces, valid_traces

from baton.measure.figure import Figure, not_measured
from baton.measure.measured import MeasuredTrace
from baton.measure.metric import METRICS
from baton.measure.metrics.scale import band_of, by_band
from baton.measure.metrics.token_matched import best_of, token_match
from baton.measure.report.checklist import checklist
from baton.measure.report.document import NOT_MEASURED, as_html, as_markdown, document, shown
from baton.measure.report.report import Rows, figures_of, measure
from baton.measure.safety.summary import safety_report
from baton.team.forks import rerun_of
from baton.team.running import run
from baton.trace.formats import read
from baton.trace.gold import Gold
from baton.trace.provenance import Labels
from baton.trace.records import Reward
from baton.trace.trace import Trace

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "v1").glob("*.jsonl"))
GOLD = Gold(
    verify=is_right("1"), items=("1",), optimum=2.0, reference=0.0, least_work_s=0.01, least_span_s=0.001,
    slots=4, milestones=("a", "b"), reached=lambda trace: {"a"}, facts=("1",),
)  # fmt: skip


def in_bounds(figures: dict[str, Figure]) -> None:
    for name, figure in figures.items():
        assert (figure.value is None) == (figure.why_not is not None), name
        if figure.value is None:
            continue
        low, high = METRICS[name].bounds if name in METRICS else (-1e300, 1e300)
        assert low - 1e-9 <= figure.value <= high + 1e-9, name
        for end in (figure.low, figure.high):
            assert end is None or low - 1e-9 <= end <= high + 1e-9, name
        if figure.low is not None and figure.high is not None:
            assert figure.low - 1e-9 <= figure.value <= figure.high + 1e-9, name


@given(arbitrary_traces(max_events=8), st.booleans())
def test_any_trace_at_all_can_be_measured(trace: Trace, gold: bool) -> None:
    report = measure([MeasuredTrace(trace, GOLD if gold else None)])
    in_bounds(report.all.figures)
    document(report)


@given(st.lists(valid_traces(), min_size=1, max_size=3), st.data())
@hypothesis_settings(max_examples=40)
def test_order_does_not_matter(traces: list[Trace], data: st.DataObject) -> None:
    traces = [
        structs.replace(trace, header=structs.replace(trace.header, trace_id=f"t{k}"))
        for k, trace in enumerate(traces)
    ]
    mixed = []
    for trace in traces:
        order = data.draw(st.permutations(range(len(trace.events))))
        mixed.append(
            structs.replace(
                trace, events=tuple(trace.events[k] for k in order), edges=tuple(reversed(trace.edges))
            )
        )
    one = measure([MeasuredTrace(trace, GOLD) for trace in traces])
    two = measure([MeasuredTrace(trace, GOLD) for trace in reversed(mixed)])
    in_bounds(one.all.figures)
    span = one.all.figures["span"].value
    work = one.all.figures["work"].value
    assert span is None or work is None or span <= work + 1e-9
    assert _rounded(one) == _rounded(two)


def _rounded(report: object) -> object:
    """Equal but for the last digit of sums along a path, whose order of events may differ where they tie."""
    built = msgspec.to_builtins(report, str_keys=True)

    def walk(value: object) -> object:
        if isinstance(value, float):
            return float(f"{value:.10g}")
        if isinstance(value, dict):
            return {key: walk(inner) for key, inner in value.items()}
        return [walk(inner) for inner in value] if isinstance(value, list) else value

    return walk(built)


@pytest.mark.parametrize("topology", TOPOLOGY_NAMES)
def test_teams_that_do_anything(topology: str) -> None:
    readings = []
    for seed in range(4):
        team, assignment = make_team(topology, seed)
        trace = asyncio.run(run(team, assignment, trace_id=f"{topology}-{seed}"))
        readings.append(MeasuredTrace(trace, structs.replace(GOLD, verify=assignment.verify)))
    report = measure(readings)
    in_bounds(report.all.figures)
    for figure in ("success", "work", "span", "tokens", "calls", "dead_tokens", "protocol_tokens"):
        assert report.all.figures[figure].value is not None, figure
    for reading in readings:  # what was recorded fits on the clock it was recorded by
        span = METRICS["span"](reading).value
        assert span is not None
        assert span <= reading.seconds + 1e-6


def test_replays_give_what_only_they_can() -> None:
    team, assignment = make_team("centralized", 3)
    trace = asyncio.run(run(team, assignment))
    reading = MeasuredTrace(trace, Gold(verify=assignment.verify))
    report = measure([reading], rerun=lambda _: rerun_of(team, assignment))
    assert "--replay" not in (report.all.figures["premature_stop_rate"].why_not or "")
    without = measure([reading], rerun=lambda _: not_measured("no team"))
    assert without.all.figures["message_value"].why_not == "no team"
    assert measure([reading]).all.figures["message_value"].value is None


def test_more_dead_work_is_more() -> None:
    base = [
        event(1, "lead", "spawn", to="w", tokens=10, duration_s=1.0),
        event(2, "lead", "orchestrator_decision", decision="stop", tokens=10, duration_s=1.0),
    ]
    shares = []
    for dead in (0, 5, 50):
        more = [event(3, "w", tokens=dead, duration_s=float(dead))]
        figures = figures_of([MeasuredTrace(trace_of(base + more, [("e1", "e2", "temporal")]))])
        shares.append((figures["dead_tokens"].value, figures["dead_seconds"].value))
    assert shares == sorted(shares)
    assert shares[0] == (0.0, 0.0)


def test_bands() -> None:
    assert [band_of(n) for n in (0, 10, 31, 32, 100, 316, 317, 20_000)] == [
        10, 10, 10, 100, 100, 100, 1000, 1000,
    ]  # fmt: skip
    short, long = (
        MeasuredTrace(trace_of([event(1, "a")])),
        MeasuredTrace(trace_of([event(k, "a") for k in range(1, 50)])),
    )
    assert [len(some) for some in by_band([short, long, short]).values()] == [2, 1, 0]
    report = measure([short, long])
    assert list(report.bands) == [10, 100]
    assert report.all.traces == 2


def test_best_of_takes_what_the_teams_tokens_buy() -> None:
    team = [team_of(workers=2, tokens=10, success=0.0, task_id="k")]  # 40 tokens
    samples = [
        team_of(workers=0, tokens=8, success=float(k == 2), trace_id=f"s{k}", task_id="k") for k in range(5)
    ]  # 16 tokens each
    found = best_of(team, samples)
    assert (found.samples.value, found.success.value) == (2, 0.0)
    cheaper = [team_of(workers=3, tokens=10, task_id="k")]  # 50 tokens buy three, and the third is right
    assert best_of(cheaper, samples).success.value == 1.0
    assert (best_of(cheaper, samples).token_match.value or 2) <= 1
    other = [team_of(workers=0, success=1.0, task_id="another")]
    assert best_of(team, other).success.why_not == "the team has no trace of the same task"


def test_a_single_agent_stands_beside_the_team() -> None:
    team = [team_of(workers=2, success=1.0, trace_id=f"t{k}", task_id=f"k{k}") for k in range(3)]
    single = [team_of(workers=0, success=float(k == 0), trace_id=f"s{k}", task_id=f"k{k}") for k in range(4)]
    report = measure(team, single=single, samples=single)
    assert report.versus_single["overhead_calls"].value == pytest.approx(1.0)
    assert report.versus_single["naive_error_ratio"].value == 0.0
    assert report.versus_single["coordination_efficiency"].value == pytest.approx(0.5)
    assert report.versus_single["token_match"].value == pytest.approx(0.5)
    assert any("not token-matched" in note for note in report.notes)
    assert report.single is not None
    assert report.single.traces == 4
    assert report.single.figures["success"].value == 0.25
    assert report.best_of is not None
    assert report.best_of.success.value == pytest.approx(1 / 3)
    strangers = measure(team, single=[team_of(workers=0, task_id="z", success=1.0)])
    assert any("unpaired" in note for note in strangers.notes)
    assert token_match(team, team).value == 1


def test_checklist_of_the_golden_traces() -> None:
    found = checklist([read(path) for path in GOLDEN])
    assert found.traces == found.tasks == 6
    assert found.topologies["debate"] == 1
    assert found.roles is not None
    assert found.roles["searcher"] == 7
    assert found.team_size == "dynamic"
    assert found.finest_credit_unit == "token"
    assert found.reward_channels["shared"] == "not recorded"
    assert found.safety.untrusted_results == 11
    assert found.safety.human_interventions == 1
    assert found.scale["tokens"].n == 6


def test_whether_rewards_are_annealed_is_read_off_their_rules() -> None:
    def channel(by: str | None) -> str:
        reward = Reward(family="hybrid", unit="team", target="t", value=1.0, by=by)
        return checklist([trace_of([event(1, "a")], rewards=(reward,))]).reward_channels["hybrid"]

    assert channel('{"rule":"hybrid","terms":[{"weight":0.5}]}') == "constant"
    assert channel('{"rule":"hybrid","terms":[{"weight":{"schedule":"linear","start":1}}]} # x') == "annealed"
    assert channel("verifier") == channel(None) == "not recorded"


def test_every_figure_says_what_it_is() -> None:
    assert set(METRICS) < set(Rows)
    assert all(row.about for row in Rows.values())


def test_a_page_and_markdown_hold_hostile_names_as_text() -> None:
    name = "</td><script>alert(1)</script>|[x](javascript:1) https://evil.test"
    events = [
        event(1, name, "tool_result", role=name, trusted=False),
        event(2, name, "orchestrator_decision", role=name, decision="stop"),
    ]
    reading = MeasuredTrace(trace_of(events, trace_id=name))
    safety = safety_report([reading], lambda _: Labels(), lambda _: not_measured("no team"))
    made = document(measure([reading], safety=safety))
    page = as_html(made)
    assert "<script" not in page.lower()
    assert "&lt;script&gt;" in page
    assert "http://" not in page
    assert "src=" not in page
    assert page.count("<table>") == page.count("</table>") == len(made.tables)
    marked = as_markdown(made)
    assert "<" not in marked
    assert "](" not in marked.replace("\\](", "")
    assert "https://" not in marked
    rows = [line for line in marked.splitlines() if line.startswith("|")]
    assert all(line.replace("\\|", "").count("|") >= 3 for line in rows)
    assert NOT_MEASURED in page


def test_a_figure_beyond_all_numbers_is_shown() -> None:
    assert shown(Figure(value=float("inf"))) == "inf"
