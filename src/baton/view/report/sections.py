"""The sections of the training report, each a function from a run to HTML."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape

from baton.view.report.run_figures import DECISIONS, REGRETS, Standing, TrainingRun, standing, standings
from baton.view.report.svg import Series, areas, bar, curves, shown
from baton.view.terminal.training_result import matched
from baton.view.text import count, duration, number, percent, printable

_NONE = '<span class="none">not measured</span>'
_HUES = {name: hue for hue, name in enumerate(REGRETS)}
_STATUS = ("running", "finished", "stopped", "diverged")


def heading(run: TrainingRun) -> str:
    """What was trained, how it stands, and what came of it."""
    status = run.said("status")
    kind = status if status in _STATUS else "stopped"
    facts = [
        f"task {escape(run.said('task'))}",
        f"seed {escape(run.said('seed'))}",
        f"started {escape(run.said('started')[:16].replace('T', ' '))} UTC",
        f"step {len(run.steps)} of {'?' if run.num_steps is None else run.num_steps}",
    ]
    why = run.said("why")
    return (
        f'<h1>{escape(run.said("recipe"))}<span class="status {kind}">{escape(status)}</span></h1>'
        f"<p>{escape(run.said('about'))}</p>"
        f'<p class="muted small">{" · ".join(facts)}</p>'
        + (f'<p class="warning">{escape(why)}</p>' if why else "")
        + _unreadable(run)
        + f'<p class="lead">{_lead(run)}</p>'
        + f'<div class="tiles">{"".join(_tiles(run))}</div>'
    )


def _unreadable(run: TrainingRun) -> str:
    if not run.num_unreadable:
        return ""
    said = count(run.num_unreadable, "line")
    return f'<p class="warning">{said} of the run’s files cannot be read and were left out.</p>'


def _lead(run: TrainingRun) -> str:
    before, after = standing(run, "untrained"), standing(run, "trained")
    if after is None or after.mean is None or before is None or before.mean is None:
        return "The trained team has not been measured yet." + escape(_trained_so_far(run))
    moved = "rose" if after.mean > before.mean else "fell" if after.mean < before.mean else "stayed"
    said = f"Return on held-out instances {moved} from {shown(before.mean)} to {shown(after.mean)}"
    if run.optimum is not None:
        said += f"; the optimum is {shown(run.optimum)}"
    was, now = before.regret["total"], after.regret["total"]
    if was and now is not None:
        said += f". Regret is {percent(was, now).lstrip('+-')} {'smaller' if now < was else 'larger'}"
        if any(after.regret[name] is not None for name in DECISIONS):
            fell = [name for name in DECISIONS if (after.regret[name] or 0.0) < (before.regret[name] or 0.0)]
            said += f", and fell in {'all five' if len(fell) == 5 else f'{len(fell)} of five'} decisions"
        if gone := run.given_up():
            said += f"; {' and '.join(gone)} {'is' if len(gone) == 1 else 'are'} not made any more"
    warned = run.warnings()
    link = f' <a href="#warnings">{count(len(warned), "warning")}</a> on the way.' if warned else ""
    return escape(said) + "." + link


def _trained_so_far(run: TrainingRun) -> str:
    """How the return moved while training. One step is a handful of episodes, so ends are tenths of the run."""
    found = [value for value in run.series("return", "mean") if value is not None]
    if len(found) < 2:
        return ""
    few = max(1, min(10, round(len(found) / 10)))
    first, last = math.fsum(found[:few]) / few, math.fsum(found[-few:]) / few
    over = "step" if few == 1 else f"{few} steps"
    return f" While it trained, its return went from {shown(first)} in the first {over} to {shown(last)} in the last."


def _tiles(run: TrainingRun) -> list[str]:
    before, after = standing(run, "untrained"), standing(run, "trained")

    def pair(get: Callable[[Standing], float | None]) -> str:
        sides = [None if each is None else get(each) for each in (before, after)]
        if sides == [None, None]:
            return _NONE
        return " → ".join("?" if value is None else f"{value:.3f}" for value in sides)

    tokens, seconds = run.series("total_tokens")[-1:], run.series("seconds")[-1:]
    return [
        _tile("return, before → after", pair(lambda each: each.mean)),
        _tile("regret", pair(lambda each: each.regret["total"])),
        _tile("normalised regret", pair(lambda each: run.normalised([each.regret["total"]])[0])),
        _tile("tokens in all", shown(tokens[0]) if tokens and tokens[0] is not None else _NONE),
        _tile("time", duration(seconds[0]) if seconds and seconds[0] is not None else _NONE),
        *([_tile("phases", _phases(run))] if run.phases else []),
    ]


def _phases(run: TrainingRun) -> str:
    """Which steps each phase has."""
    ends = [first - 1 for _, first in run.phases[1:]] + [run.num_steps]
    return " → ".join(
        f"{escape(name)} {first}–{'' if end is None else end}"
        for (name, first), end in zip(run.phases, ends, strict=True)
    )


def _tile(title: str, value: str) -> str:
    return f'<div class="tile"><span>{escape(title)}</span><b>{value}</b></div>'


def _comparison(run: TrainingRun) -> str:
    rows = standings(run)
    if not rows:
        return '<p class="none">Nobody has been measured yet.</p>'
    values = [row.mean for row in rows if row.mean is not None]
    most = max([0.0, *values])
    failed = ("failed",) if any(row.failed for row in rows) else ()
    head = ("", "return", "", "regret", *REGRETS, "tokens", "num invalid", *failed, "episodes")
    body = []
    for row in rows:
        if row.why_not:
            body.append(_row(row.who, [f'<td colspan="{len(head) - 1}" class="none">{escape(matched(row))}']))
            continue
        kind = "after" if row.who == "trained" else "before"
        cells = ["<td>" + _interval(row), "<td>" + bar([(row.mean, kind)], most, mark=run.optimum)]
        cells += _regrets(row)
        if row.episodes is None:
            cells.append(f'<td colspan="{3 + len(failed)}" class="muted">exact, by the solver')
        else:
            tokens = _NONE if row.tokens is None else f"{row.tokens:,.0f}"
            counts = (row.invalid, row.failed)[: 1 + len(failed)]
            broken = [_NONE if n is None else f"{n:.2f}" for n in counts]
            cells += [f"<td>{tokens}", *(f"<td>{each}" for each in broken), f"<td>{row.episodes:,}"]
        body.append(_row(row.who, cells, "team" if row.who == "trained" else ""))
    return _table("What each earned", head, body) + (
        '<p class="muted small">± is a 95 % interval over held-out episodes; the line on each bar is the optimum. '
        "<b>best of n</b> keeps the try with the best true score: an upper bound on what trying more often can do, and "
        "it may beat the optimum by luck. n is such that the tokens of all tries come nearest to the trained team’s. "
        "<b>alone</b> has the trained weights and may not spawn; what it did not learn to do alone shows as invalid "
        f"answers. {_matched(rows)}<b>single agent</b> is the best that can be done without spawning anybody, by the "
        "solver. Tokens, invalid answers and failed calls are per episode.</p>"
    )


def _matched(rows: Iterable[Standing]) -> str:
    """Both token counts of everyone who was given the trained team's."""
    return "".join(
        f"{escape(f'{row.who}: {matched(row)}')}. " for row in rows if matched(row) and not row.why_not
    )


def _interval(row: Standing) -> str:
    if row.mean is None:
        return _NONE
    half = "" if row.half is None or row.episodes is None else f" ±{row.half:.3f}"
    return f"{row.mean:.4f}{half}"


def _regrets(row: Standing) -> list[str]:
    """In all and by decision; one cell where nothing of it was measured."""
    if all(value is None for value in row.regret.values()):
        return [f'<td colspan="{len(row.regret)}">{_NONE}']
    return [f"<td>{_regret(row.regret[name])}" for name in ("total", *REGRETS)]


def _regret(value: float | None) -> str:
    return _NONE if value is None else f"{value + 0.0:.4f}".replace("-0.0000", "0.0000")


def _learning(run: TrainingRun) -> str:
    steps, tokens = _steps(run), run.series("total_tokens")
    single, before = standing(run, "single agent"), standing(run, "untrained")
    levels = [
        ("optimum", run.optimum),
        ("single agent", single.mean if single else None),
        ("untrained", before.mean if before else None),
    ]
    team = Series(name="return", values=run.series("return", "mean"), half=run.series("return", "half"))
    normal = run.normalised(run.series("regret", "total"))
    regret = Series(name="normalised regret", values=normal, hue=2)
    random = [("random play", 1.0)]
    plots = [
        curves("Return per step, 95 % interval", steps, [team], levels=levels, zero=False),
        curves("Normalised regret: 0 optimum, 1 random play", steps, [regret], levels=random),
    ]
    if _whole(tokens):
        plots.append(
            curves("Normalised regret by tokens", _whole(tokens), [regret], levels=random, along="tokens")
        )
    rewards = [
        Series(name=name, values=run.series("rewards", name), hue=hue % 8)
        for hue, name in enumerate(run.names("rewards"))
    ]
    if len(rewards) > 1:
        plots.append(curves("Reward by channel", steps, rewards, zero=False))
    return _plots(plots)


def _decisions(run: TrainingRun) -> str:
    parts = [
        Series(name=name, values=run.series("regret", name), hue=_HUES[name])
        for name in REGRETS
        if any(value is not None for value in run.series("regret", name))
    ]
    if not parts:
        return '<p class="none">Not measured: this task has no exact solver to measure regret against.</p>'
    steps, tokens = _steps(run), _whole(run.series("total_tokens"))
    plots = [areas("Regret by decision, over steps", steps, parts)]
    if tokens:
        plots.append(areas("Regret by decision, over tokens", tokens, parts, along="tokens"))
    small = [curves(part.name, steps, [part], small=True) for part in parts]
    return (
        "<p>What each choice cost against the best choice at that moment, read off the traces with the exact "
        "solution: no luck is in it. An answer that could not be carried out is charged what a choice of random play "
        "costs on average. The five and these add up to the whole. Below, each on its own scale.</p>"
        + _plots(plots, "two")
        + _plots(small, "five")
    )


def _ledger(run: TrainingRun) -> str:
    before, after = standing(run, "untrained"), standing(run, "trained")
    random = standing(run, "random play")
    if before is None or before.regret["total"] is None:
        return '<p class="none">Not measured: this task has no exact solver to measure regret against.</p>'
    found = [value for each in (before, after) if each for value in each.regret.values() if value is not None]
    most = max([0.0, *(v for v in found)])
    body = []
    for name in (*REGRETS, "total"):
        was, now = before.regret[name], None if after is None else after.regret[name]
        worse = was is not None and now is not None and now > was
        cells = [
            _regret(was),
            _regret(now),
            _change(was, now)
            + (' <span class="muted">not made any more</span>' if name in run.given_up() else ""),
            bar([(was, "before"), (now, "worse" if worse else "after")], most),
            _NONE if random is None else _regret(random.regret[name]),
        ]
        body.append(_row(name, cells, "team" if name == "total" else "", hue=_HUES.get(name)))
    return _table(
        "Regret by decision",
        ("decision", "untrained", "trained", "change", "before, after", "random play"),
        body,
    )


def _change(was: float | None, now: float | None) -> str:
    if was is None or now is None:
        return _NONE
    kind = "fell" if now < was else "rose" if now > was else ""
    change = percent(was, now) if was >= 5e-4 else f"{now - was:+.4f}"
    return f'<span class="{kind}">{change.replace("-", "−")}</span>'


def _credit(run: TrainingRun) -> str:
    names = run.names("credit")
    if not names:
        return '<p class="none">not measured</p>'
    steps = _steps(run)

    def parts(get: Callable[[str], list[float | None]]) -> list[Series]:
        hues = [_HUES.get(name, 5 + n % 3) for n, name in enumerate(names)]
        return [Series(name=name, values=get(name), hue=hue) for name, hue in zip(names, hues, strict=True)]

    sizes = parts(lambda name: run.series("credit", name, "mean_abs"))
    counts = parts(lambda name: run.series("credit", name, "num"))
    return (
        "<p>How strongly each decision is pushed: the mean size of the credit its choices were given, and how many "
        "choices there were to give it to. A decision that comes up more often can cost more in all although each "
        "choice is better, so its regret stands here by choice.</p>"
        + _plots(
            [
                curves("Mean size of credit", steps, sizes),
                curves("Choices", steps, counts),
                curves("Regret per choice", steps, parts(run.regret_per_choice)),
            ]
        )
    )


def _team(run: TrainingRun) -> str:
    steps = _steps(run)
    titles = {
        "agents": "Agents per episode",
        "messages": "Messages per episode",
        "events": "Events per episode",
        "calls": "Calls per episode",
        "invalid": "Invalid answers per episode",
        "cut_off": "Share of episodes a budget cut off",
    }
    if any(run.series("sizes", "failed")):
        titles["failed"] = "Calls per episode that were not answered"
    return _plots(
        curves(title, steps, [Series(name=name, values=run.series("sizes", name), hue=hue)])
        for hue, (name, title) in enumerate(titles.items())
        if name in ("agents", "messages", "invalid") or any(v is not None for v in run.series("sizes", name))
    )


def _updates(run: TrainingRun) -> str:
    titles = {
        "loss": "Loss",
        "grad_norm": "Gradient norm",
        "entropy": "Entropy",
        "kl": "Divergence from the reference",
        "clip_fraction": "Share of tokens clipped",
        "moved": "KL of an answer over the step",
    }
    steps = _steps(run)
    return _plots(
        curves(title, steps, [Series(name=name, values=run.series(name), hue=hue)], zero=name != "loss")
        for hue, (name, title) in enumerate(titles.items())
    )


def _warnings(run: TrainingRun) -> str:
    found = run.warnings()
    if not found:
        return (
            "<p>No monitor of collapse had anything to say.</p>"
            if run.steps
            else "<p>No step is done yet.</p>"
        )
    return "".join(
        f'<div class="warning"><b>{escape(printable(name))}</b> <span class="muted">at {_spans(steps)}</span>'
        f"<p>{escape(printable(message))}</p></div>"
        for name, steps, message in found
    )


def _spans(steps: Sequence[int]) -> str:
    """Steps in words, runs of them as spans: steps 3, 5–9."""
    spans: list[list[int]] = []
    for step in steps:
        if spans and step == spans[-1][1] + 1:
            spans[-1][1] = step
        else:
            spans.append([step, step])
    said = ", ".join(f"{a}" if a == b else f"{a}–{b}" for a, b in spans[:12])
    return f"step{'' if len(steps) == 1 else 's'} {said}{'' if len(spans) <= 12 else ' …'}"


def _cost(run: TrainingRun) -> str:
    totals = {key: run.total(key) for key in ("rollout_tokens", "fork_tokens", "episodes")}
    play, update = run.total("rollout_seconds"), run.total("update_seconds")
    computed, rows = run.total("computed_tokens"), run.total("row_tokens")
    seconds = run.series("seconds")[-1:]
    saved = f" ({rows / computed:.1f}× fewer)" if computed and rows else ""
    facts = [
        ("episodes played", _number(totals["episodes"])),
        ("tokens of rollouts", _number(totals["rollout_tokens"])),
        ("tokens of forks, run again for credit", _number(totals["fork_tokens"])),
        ("seconds in all", _NONE if not seconds or seconds[0] is None else duration(seconds[0])),
        ("seconds of playing", _NONE if play is None else duration(play)),
        ("seconds of crediting and updating", _NONE if update is None else duration(update)),
        ("tokens the update's rows hold", _number(rows)),
        ("tokens computed, prefixes shared", _number(computed) + saved),
    ]
    facts += [(name, value) for name, value in _window_facts(run) if value is not None]
    body = [_row(name, [value]) for name, value in facts]
    steps = _steps(run)
    spent = [
        Series(name="playing", values=run.series("rollout_seconds")),
        Series(name="crediting and updating", values=run.series("update_seconds"), hue=3),
    ]
    speed = Series(name="tokens/s", values=run.series("tokens_per_second"), hue=4)
    rate = curves("Tokens a second, playing and training together", steps, [speed])
    plots = [areas("Seconds of a step", steps, spent), rate]
    ages = run.series("staleness", "mean")
    if any(ages):
        old = [
            Series(name="mean", values=ages),
            Series(name="most", values=run.series("staleness", "max"), hue=3),
        ]
        plots.append(curves("Updates behind, of the weights that drew what is trained", steps, old))
    idle = [
        Series(name=who, values=run.series("idle", who), hue=hue)
        for who, hue in (("trainer", 0), ("players", 3))
    ]
    if any(value is not None for each in idle for value in each.values):
        plots.append(curves("Idle share of a step", steps, idle))
    return _table("Cost", ("", ""), body) + _plots(plots, "two")


def _window_facts(run: TrainingRun) -> list[tuple[str, str | None]]:
    """Of runs that train on more than a step's own rollouts: how old these were, who waited, what was thrown away."""
    ages = [age for age in run.series("staleness", "mean") if age is not None]
    idle = {
        who: [share for share in run.series("idle", who) if share is not None]
        for who in ("trainer", "players")
    }
    left = [many for many in run.series("stragglers", "left") if many is not None]
    gone = run.total("discarded_tokens")
    return [
        ("updates behind, mean over steps", f"{sum(ages) / len(ages):.2f}" if any(ages) else None),
        *(
            (
                f"idle share of {'the trainer' if who == 'trainer' else 'players'}",
                f"{sum(each) / len(each):.0%}",
            )
            for who, each in idle.items()
            if each
        ),
        ("groups unfinished when a step closed, mean", f"{sum(left) / len(left):.1f}" if left else None),
        ("tokens discarded with groups that were cut", _number(gone) if gone else None),
    ]


def _recipe(run: TrainingRun) -> str:
    try:
        text = (run.path / "recipe.toml").read_text("utf-8", errors="backslashreplace")
    except OSError:
        return '<p class="none">recipe.toml is not there.</p>'
    shown_text = "\n".join(printable(line) for line in text.splitlines())
    return (
        "<p>The resolved recipe, every setting written out. It gives the same run again: "
        "<code>baton train recipe.toml</code></p>"
        '<details><summary>recipe.toml</summary><pre tabindex="0" role="group" aria-label="recipe.toml">'
        f"{escape(shown_text)}</pre></details>"
    )


SECTIONS: tuple[tuple[str, str, Callable[[TrainingRun], str]], ...] = (
    ("comparison", "Before, after, and what else the tokens buy", _comparison),
    ("ledger", "Regret by decision, before and after", _ledger),
    ("learning", "Learning curves", _learning),
    ("decisions", "Regret by decision while training", _decisions),
    ("credit", "Credit", _credit),
    ("team", "The team", _team),
    ("updates", "Updates", _updates),
    ("warnings", "Warnings", _warnings),
    ("cost", "Cost", _cost),
    ("recipe", "Recipe", _recipe),
)


def _steps(run: TrainingRun) -> list[float]:
    return [value if value is not None else float(n + 1) for n, value in enumerate(run.series("step"))]


def _whole(values: Sequence[float | None]) -> list[float]:
    """The values if all were measured, else nothing."""
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else []


def _plots(drawn: Iterable[str], kind: str = "three") -> str:
    return f'<div class="plots {kind}">{"".join(drawn)}</div>'


def _number(value: float | None) -> str:
    return _NONE if value is None else number(value)


def _table(name: str, head: Sequence[str], body: Sequence[str]) -> str:
    """A table that can be scrolled by keys where it is wider than the screen."""
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    top = f"<thead><tr>{titles}</tr></thead>" if any(head) else ""
    wide = f'<div class="wide" tabindex="0" role="group" aria-label="{escape(name)}">'
    return f"{wide}<table>{top}<tbody>{''.join(body)}</tbody></table></div>"


def _row(name: str, cells: Sequence[str], kind: str = "", *, hue: int | None = None) -> str:
    mark = "" if hue is None else f' class="hued h{hue}"'
    rest = "".join(f"{cell}</td>" if cell.startswith("<td") else f"<td>{cell}</td>" for cell in cells)
    return f"<tr{f' class={chr(34)}{kind}{chr(34)}' if kind else ''}><th{mark}>{escape(name)}</th>{rest}</tr>"
