"""What monitors do besides warning: stop the run, lower a weight or a rate, switch a term off, roll back.

    [[acts]]
    monitor = "judge-drift"          # when it begins to warn
    do = "lower"                     # stop, lower, off, roll-back
    what = "verdict"                 # lower, off: a term of the reward, or train.learning_rate
    by = 0.5                         # lower: what is left of it
    times = 2                        # at most so often

`roll-back` puts weights, optimisers, what the critic knows and the price of constraints back to a checkpoint from at
least `steps` steps ago; the run goes on with the next step number, on instances it has not seen, at a rate lowered by
`by` (the same run from the same place would go wrong again). What was changed holds to the end of the run. Each act
stands in the step's metrics (`acts`), on its traces (`meta.train.acts`), and in the checkpoint, so that a resumed run
has the same weights.

Invariant: an act is a function of the warnings of the steps so far; without `[[acts]]` none of this is imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from msgspec import structs

from baton import registry
from baton.errors import BatonError, UsageError, nearest
from baton.learn.recipe import ActPart, Recipe
from baton.learn.run import checkpoint
from baton.learn.scoring import each_hybrid, hybrids
from baton.learn.trainer import Step, Trainer
from baton.reward.hybrid import Hybrid, Weight
from baton.reward.monitors import Mode
from baton.reward.rule import Rule
from baton.trace.trace import Trace

_RATE = "train.learning_rate"


class StoppedByMonitor(BatonError):
    """A monitor saw what the recipe says to stop for."""


class Acting:
    """The acts of a run, and how often each was done."""

    def __init__(self, parts: Sequence[ActPart]) -> None:
        self.parts = tuple(parts)
        self.done = [0] * len(self.parts)
        self.factors: dict[str, float] = {}
        """What was lowered -> what is left of it; 0: switched off."""
        self.stopping: str | None = None
        """Why the run is to end; None: it goes on."""

    def after(self, made: Step, trainer: Trainer, folder: Path) -> Step:
        """Do what is asked for where a monitor began to warn at this step; the step, saying what was done."""
        acts = []
        for number, part in enumerate(self.parts):
            for warning in made.metrics["warnings"]:
                if warning["monitor"] == part.monitor and self.done[number] < part.times:
                    self.done[number] += 1
                    acts.append({"monitor": part.monitor, "do": part.do, **self._do(part, trainer, folder)})
                    if part.do == "stop":
                        self.stopping = (
                            f"monitor {part.monitor} stopped the run after step {trainer.step_number}: "
                            + (
                                f"{warning['message']} Type: baton train --resume --out DIR, to go on all the same."
                            )
                        )
        if not acts:
            return made
        traces = [_marked(trace, acts) for trace in made.traces]
        return Step(metrics={**made.metrics, "acts": acts}, traces=traces)

    def stopped(self) -> StoppedByMonitor:
        """What ends the run."""
        return StoppedByMonitor(self.stopping)

    def _do(self, part: ActPart, trainer: Trainer, folder: Path) -> dict[str, Any]:
        if part.do == "stop":
            return {}
        what, by = (_RATE, part.by) if part.do == "roll-back" else (part.what, part.by * (part.do != "off"))
        told = {"to": _roll_back(trainer, folder, part.steps)} if part.do == "roll-back" else {}
        self.factors[what] = self.factors.get(what, 1.0) * by
        _scale(trainer, what, by)
        return {**told, "what": what, "left": self.factors[what]}

    def state_dict(self) -> dict[str, Any]:
        return {"done": self.done, "factors": self.factors}

    def load_state_dict(self, state: Mapping[str, Any], trainer: Trainer) -> None:
        """What `state_dict` gave, done again to a trainer that knows the recipe alone."""
        self.done, self.factors = list(state["done"]), dict(state["factors"])
        for what, factor in self.factors.items():
            _scale(trainer, what, factor)


def _scale(trainer: Trainer, what: str, by: float) -> None:
    """Less of a term of the reward, in every phase, or of the rate of learning."""
    if what == _RATE:
        trainer.rate_factor *= by
        trainer.set_rates()
        return
    for scoring in {id(phase.scoring): phase.scoring for phase in trainer.phases}.values():
        if scoring.recipe is not None:
            rules = tuple(each_hybrid(rule, lambda found: _scaled(found, what, by)) for rule in scoring.rules)
            scoring.recipe = structs.replace(scoring.recipe, rules=rules)


def _scaled(rule: Hybrid, what: str, by: float) -> Hybrid:
    terms = [
        structs.replace(term, weight=_less(term.weight, by)) if term.of.name == what else term
        for term in rule.terms
    ]
    return structs.replace(rule, terms=tuple(terms))


def _less(weight: Weight, by: float) -> Weight:
    """A weight scaled; of one with a schedule, both ends."""
    if isinstance(weight, int | float):
        return weight * by
    return structs.replace(weight, start=weight.start * by, end=weight.end * by)


def _marked(trace: Trace, acts: Sequence[Mapping[str, Any]]) -> Trace:
    told = {**trace.header.meta.get("train", {}), "acts": list(acts)}
    return structs.replace(
        trace, header=structs.replace(trace.header, meta={**trace.header.meta, "train": told})
    )


def _roll_back(trainer: Trainer, folder: Path, steps: int) -> int:
    """Put back what a checkpoint has; its step."""
    wanted = trainer.step_number - steps
    places = [place for place in sorted(folder.glob("step-*")) if int(place.name[5:]) <= wanted]
    place = places[-1] if places else sorted(folder.glob("step-*"))[0]
    versions = {name: policy.version for name, policy in trainer.policies.items()}
    saved = checkpoint.restore(place, trainer.policies)
    for name, policy in trainer.policies.items():  # versions count on: other weights never go by one name
        if policy.learns:
            policy.load_state_dict(policy.state_dict(), versions[name] + 1)
    trainer.critic.load_state_dict(saved.remembered["critic"])
    trainer.crediting.load_state_dict(saved.remembered["crediting"])
    if trainer.constraints is not None:  # what the price was for those weights
        trainer.constraints.load_state_dict(saved.remembered["constraints"])
    trainer.buffer.groups = []  # played by what was given up
    return int(saved.remembered["step"])


def check_acts(recipe: Recipe, rules: Sequence[Rule]) -> None:
    """Refuse acts that could not be done, before anything is computed."""
    known = [*registry.names("monitor"), *(mode.replace("_", "-") for mode in get_args(Mode))]
    own = [name for name in recipe.train.monitors if registry.is_reference(name)]
    terms = [term.of.name for rule in hybrids(rules) for term in rule.terms]
    for number, part in enumerate(recipe.acts):
        where = f"acts.{number}"
        if part.monitor not in known and not own:
            raise UsageError(f"{where}: there is no monitor {part.monitor!r}. {nearest(part.monitor, known)}")
        if part.do in ("lower", "off"):
            if not part.what:
                raise UsageError(
                    f'{where}: "{part.do}" needs `what`: a term of the reward, or {_RATE}. '
                    f"The terms are: {', '.join(terms) or 'none'}."
                )
            if part.what not in (*terms, _RATE):
                raise UsageError(
                    f"{where}: there is no term {part.what!r} in the reward. {nearest(part.what, [*terms, _RATE])}"
                )
            if part.do == "off" and part.what == _RATE:
                raise UsageError(f'{where}: a rate of 0 learns nothing. Write do = "stop".')
        elif part.what:
            raise UsageError(f'{where}: "{part.do}" has no `what`. Leave it out.')
    rolls = any(part.do == "roll-back" for part in recipe.acts)
    if rolls and (recipe.scale.trainer_processes > 1 or recipe.lag):
        raise UsageError(
            "a roll-back needs the weights in this process, and no rollouts that were played ahead by what it gives "
            "up. Leave out scale.trainer_processes and scale.lag, or write another act."
        )
