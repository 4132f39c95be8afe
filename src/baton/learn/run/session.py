"""A whole run in a folder, step by step, with checkpoints, evaluations and all traces kept.

`baton.compose.training` begins one or goes on with one.

Invariant: everything acknowledged is on disk; a run that was killed goes on from its last whole checkpoint and gives
the numbers it would have given.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from baton.errors import BatonError, UsageError
from baton.learn.recipe import Recipe
from baton.learn.run import checkpoint
from baton.learn.run.evaluate import (
    NotAlone,
    alone_at_tokens,
    best_of,
    best_summary,
    held_out,
    measured,
    references,
    regrets,
    summary,
    tries_for,
)
from baton.learn.run.folder import Folder, read_lines
from baton.learn.run.loggers import Loggers
from baton.learn.stage import Unanswered, collecting_seldom
from baton.learn.trainer import Diverged, Trainer
from baton.trace.outcome import task_return
from baton.trace.trace import Trace

if TYPE_CHECKING:
    from baton.learn.acting import Acting

EXAMPLES = 4
"""Traces kept of what a team does before and after."""


class Session:
    """One run."""

    def __init__(
        self, trainer: Trainer, folder: Folder, *, name: str, note: Callable[[str], None] | None = None
    ) -> None:
        self.trainer = trainer
        self.recipe = trainer.recipe
        self.folder = folder
        trainer.stage.settle(folder.path)
        self.name = name
        self._seconds = 0.0
        self._resumed_at: int | None = None
        """The step that it went on after; None: it began here."""
        self._began = time.monotonic()
        self._loggers = Loggers(trainer.recipe, folder.path, folder.told, note)
        self._acting = _acting(trainer.recipe)
        self._profile: Any = None
        """What times the run, where that was asked for."""

    def profile(self) -> Session:
        """Keep where the time of every step goes from here on: `profile.chrome.json` in the run's folder."""
        from baton.learn.run.profile import Profile  # a run that is not profiled does not meet it

        if self._profile is None:
            self._profile = Profile(self)
        return self

    def measure_untrained(self, progress: Callable[[str], None] | None) -> Session:
        """What the team is worth before it is trained; then the first checkpoint, from which a run can go on."""
        try:
            with self._telling("interrupted before the first step"):
                constraints = self.trainer.constraints
                within = [] if constraints is None else constraints.references(self.trainer.stage.game)
                for line in (*references(self.trainer.stage.game), *within):
                    self.folder.add("evals", line)
                if progress is not None:
                    progress("measuring the untrained team")
                self.evaluate("untrained")
                self.checkpoint()
        except BaseException:  # nobody gets the session, who could close it
            self.close()
            raise
        return self

    def go_on_from(self, step: int) -> None:
        """The run goes on after this step: what came later is done again, and the clock counts from there."""
        self.folder.forget_after(step)
        self._resumed_at = step
        self._loggers.resumed_at = step
        lines = read_lines(self.folder.path / "metrics.jsonl")
        self._seconds = lines[-1].get("seconds", 0.0) if lines else 0.0

    def steps(self) -> Iterator[dict[str, Any]]:
        """Every step that is left, one line of metrics at a time; then the last evaluation."""
        with self._telling("interrupted"):
            while self.trainer.step_number < self.recipe.train.steps:
                yield self._step()

    @contextmanager
    def _telling(self, interrupted: str) -> Iterator[None]:
        """What ends the body ends the run, and run.json says why."""
        try:
            yield
        except Diverged as error:
            why = f"{error} {self._last_good()}"
            self.folder.tell({"status": "diverged", "why": why})
            raise Diverged(why, error.lower) from error
        except KeyboardInterrupt:
            self.folder.tell({"status": "stopped", "why": interrupted})
            raise
        except BatonError as error:
            with suppress(UsageError):  # the disk may be what failed
                self.folder.tell({"status": "stopped", "why": str(error)})
            raise

    def _last_good(self) -> str:
        """Says which checkpoint to go on from. One that was gone on from, and led nowhere, is none."""
        place = checkpoint.latest(self.folder.checkpoints)
        if self.trainer.step_number != self._resumed_at or checkpoint.drop(place) is None:
            return f"The last good checkpoint is {place.name}."
        before = checkpoint.latest(self.folder.checkpoints).name
        return f"There is no going on from {place.name}, so it is gone; the last good checkpoint is {before}."

    def _step(self) -> dict[str, Any]:
        made = self.trainer.step()
        if self._acting is not None:
            made = self._acting.after(made, self.trainer, self.folder.checkpoints)
        line = {
            **made.metrics,
            "seconds": self._seconds + time.monotonic() - self._began,
            "regret": regrets(self.trainer.stage.game, made.traces),
        }
        self.folder.keep(made.traces)
        self.folder.add("metrics", line)
        self._loggers.log(line["step"], _flat(line))
        every = self.recipe.train.checkpoint_every
        if line["step"] % every == 0 or line["step"] == self.recipe.train.steps:
            self.checkpoint()
        if self._acting is not None and self._acting.stopping is not None:
            self.checkpoint()
            raise self._acting.stopped()
        return line

    def recall(self, remembered: Mapping[str, Any]) -> None:
        """What a checkpoint keeps of the run beside its trainer."""
        if self._acting is not None and "acting" in remembered:
            self._acting.load_state_dict(remembered["acting"], self.trainer)

    def checkpoint(self) -> Path:
        """What a run can go on from: refused where the critic has diverged, so that the one before stays the last."""
        trainer = self.trainer
        remembered = trainer.remembered()
        if self._acting is not None:
            remembered["acting"] = self._acting.state_dict()
        if not checkpoint.finite(remembered):
            raise Diverged(
                f"the critic's weights are no numbers any more after step {trainer.step_number}: the run has diverged. "
                "Lower critic.learning_rate.",
                "critic.learning_rate",
            )
        groups = trainer.kept_groups()
        for policy in trainer.policies.values():
            policy.forget()  # as it will be for a run that goes on from here
        return checkpoint.save(
            self.folder.checkpoints, trainer.step_number, trainer.policies, remembered, groups
        )

    @collecting_seldom()
    def evaluate(self, who: str = "team", *, keep: bool = True) -> dict[str, Any]:
        """Measure the policies as they are, and write it down."""
        trainer = self.trainer
        step = trainer.step_number
        episodes = held_out(self.recipe, "before" if who == "untrained" else "after", step)
        traces = asyncio.run(trainer.stage.play(trainer.engines(), episodes))
        line = self._summary(who, traces)
        if keep:
            self.folder.keep(traces[:EXAMPLES])
            self.folder.add("evals", line)
            self._loggers.log(step, _flat({"eval": {who: line}}))
        return line

    @collecting_seldom()
    def finish(self) -> list[dict[str, Any]]:
        """The last measurements: the trained team, and what its tokens buy the untrained one and a single agent."""
        with self._telling("interrupted"):
            after = self.evaluate()
            tokens = after["tokens"]
            alone = self._alone(tokens)
            with self._first_weights():
                best = self._best_of(tokens)
            for line in (best, alone):
                self.folder.add("evals", line)
        self.folder.tell({"status": "finished", "why": ""})
        return [after, best, alone]

    @contextmanager
    def _first_weights(self) -> Iterator[None]:
        """The body has the weights that the run started from."""
        policies = self.trainer.policies
        trained = {name: policy.state_dict() for name, policy in policies.items() if policy.learns}
        versions = {name: policy.version for name, policy in policies.items()}
        first = sorted(self.folder.checkpoints.glob("step-*"))[0]
        checkpoint.load_weights(first, policies)
        self.trainer.rollouts.publish()
        try:
            yield
        finally:
            for name, state in trained.items():
                policies[name].load_state_dict(state, versions[name])

    def _best_of(self, tokens: float) -> dict[str, Any]:
        """What these tokens buy the team as it is."""
        trainer = self.trainer
        known = read_lines(self.folder.path / "evals.jsonl")
        one = next((line for line in known if line.get("who") == "untrained"), None)
        if one is None or "tokens" not in one:  # somebody changed the file; what was trained stands without
            why = "evals.jsonl does not say any more what the untrained team took"
            return {"step": trainer.step_number, "who": "best-of", "episodes": 0, "why": why}
        tries = tries_for(tokens, one["tokens"], self.recipe.eval.best_of)
        traces, returns = best_of(trainer.stage, trainer.engines(), self.recipe, tries, task_return)
        return best_summary("best-of", trainer.step_number, traces, returns, tokens)

    def _alone(self, tokens: float) -> dict[str, Any]:
        """What they buy a single agent with these weights, or why that is not measured."""
        trainer = self.trainer
        trainer.rollouts.publish()
        try:
            traces, returns = alone_at_tokens(
                trainer.stage, trainer.policies, self.recipe, tokens, task_return
            )
        except (NotAlone, Unanswered) as error:  # what was trained stands without this row
            return {"step": trainer.step_number, "who": "alone", "episodes": 0, "why": str(error)}
        return best_summary("alone", trainer.step_number, traces, returns, tokens)

    def _summary(self, who: str, traces: Sequence[Trace]) -> dict[str, Any]:
        trainer = self.trainer
        returns = [task_return(trace) for trace in traces]
        line = summary(trainer.stage.game, who, trainer.step_number, traces, returns)
        if trainer.constraints is not None:
            line["constraints"] = trainer.constraints.figures(traces)
        return line | measured(self.recipe.eval.metrics, traces)

    def close(self) -> None:
        if self._profile is not None:
            self._profile.close()
            self._profile = None
        self._loggers.close()
        self.trainer.close()
        self.folder.close()


def _acting(recipe: Recipe) -> Acting | None:
    """What monitors may do; None: they warn and no more."""
    if not recipe.acts:
        return None
    from baton.learn.acting import Acting  # nobody else meets it

    return Acting(recipe.acts)


def _flat(line: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """Scalars by path."""
    found: dict[str, float] = {}
    for key, value in line.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[prefix + key] = float(value)
    return found
