"""A game on the team runtime: the orchestrator's policy chooses, chance answers, agents come and go.

Every choice is one event of the orchestrator, of the type its verb has, labelled with the decision
its state asks for; `extra["step"]` holds state and option. Where one thing alone can follow, it holds the
reward and the next state as well; where chance decides, those are nature's: the draw is an event of its own
right after the choice, a result that nobody chose (`extra["draw"]`), so that credit can tell a choice from
its luck. The play can be read off the trace alone (`steps_of`). Agents that commands spawn or speak to are
real ones; they report when the orchestrator waits, when chance has spoken, before reports are fused, and when
play is over.

Invariant: what follows is a function of the instance and of the choices. The k-th lottery of a run
draws with the instance's k-th key whoever plays, so policies and forks share their luck.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct, structs

from baton.games.game import Branch, Choice, Game, State, lottery
from baton.team.action import VERBS, Action, Aggregate, Cancel, Delegate, Forbidden, Send, Spawn, Stop, Wait
from baton.team.agent import Agent
from baton.team.clock import uniform
from baton.team.recording import Said, draw_id
from baton.team.surface import Lines, Parsed, Surface, Tools
from baton.team.verbs import do
from baton.trace.records import Event
from baton.trace.vocabulary import EdgeType

_REMEMBERED = 65_536
_LINES, _TOOLS = Lines(), Tools()


def state_key(state: State) -> str:
    """A state as text: the same in every process, and readable back."""
    return msgspec.json.encode(state).decode()


@lru_cache(_REMEMBERED)
def read_state(key: str) -> State:
    """The state a key stands for."""
    return _tuples(msgspec.json.decode(key))  # type: ignore[no-any-return]  # nested as it was


class TracedStep(Struct, frozen=True, kw_only=True):
    """One choice of a play and what followed, as a trace tells them."""

    event: int
    """The place of the choice in the trace's events."""
    drawn: int
    """The place of the event that tells what followed: nature's draw, or the choice itself."""
    state: State
    option: str
    reward: float
    after: State


def steps_of(events: Iterable[Event]) -> list[TracedStep]:
    """The steps that events tell, in order. A choice whose draw is not among them is left out.

    Traces from before nature had events of its own have reward and next state with every choice.
    """
    found: list[TracedStep] = []
    open_: tuple[int, dict[str, Any]] | None = None
    for place, event in enumerate(events):
        if "step" in event.extra:
            open_ = (place, event.extra["step"])
            told = event.extra["step"] if "next" in event.extra["step"] else None
        else:
            told = event.extra.get("draw")
        if told is None or open_ is None:
            continue
        at, step = open_
        found.append(
            TracedStep(
                event=at,
                drawn=place,
                state=read_state(step["state"]),
                option=step["option"],
                reward=told["reward"],
                after=read_state(told["next"]),
            )
        )
        open_ = None
    return found


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


class View(Struct, frozen=True, kw_only=True):
    """A state as the orchestrator meets it."""

    key: str
    text: str
    """What it reads."""
    options: tuple[str, ...]
    """What it may answer, written as its surface has it."""
    moves: dict[str, str]
    """Each answer as a line -> the game's own word for it."""
    speaks_to: tuple[str, ...]
    """Whom the answers name."""
    decision: Choice | None
    """None: play is over."""


class GameStep(Struct, frozen=True, kw_only=True):
    """One choice and what followed."""

    option: str
    reward: float
    after: State
    by_chance: bool


class Board:
    """A game as teams play it: states as they are shown, lotteries ready to draw. Shared by many runs."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self.view = lru_cache(_REMEMBERED)(self._view)
        self._lottery = lru_cache(_REMEMBERED)(self._make_lottery)

    def _view(self, state: State, surface: str | Surface) -> View:
        game = self.game
        options = game.options(state)
        actions = [_action(option) for option in options]
        own = _TOOLS if isinstance(surface, str) else surface
        said = options if surface == "lines" else tuple(map(own.render, actions))
        return View(
            key=state_key(state),
            text="\n".join([game.text(state), "answer with one of:", *said]),
            options=said,
            moves=dict(zip(map(_LINES.render, actions), options, strict=True)),
            speaks_to=tuple(
                dict.fromkeys(action.agent for action in actions if isinstance(action, Delegate | Send))
            ),
            decision=game.decision(state) if options else None,
        )

    def _make_lottery(self, state: State, option: str) -> tuple[list[float], Sequence[Branch]]:
        return lottery(self.game.step(state, option))

    def is_lottery(self, state: State, option: str) -> bool:
        """Whether more than one thing may follow."""
        return bool(self._lottery(state, option)[0])

    def follow(self, state: State, option: str, key: str) -> GameStep:
        """What an option leads to under a key."""
        bounds, branches = self._lottery(state, option)
        _, after, reward = branches[bisect(bounds, uniform(key)) if bounds else 0]
        return GameStep(option=option, reward=float(reward), after=after, by_chance=bool(bounds))


class GamePlay:
    """One run of a game by one team."""

    def __init__(self, board: Board, state: State, stream: int, surface: Any) -> None:
        self.board = board
        self.state = state
        self.view: View = board.view(state, surface)
        self._stream = stream
        self._surface = surface
        self._num_draws = 0
        self._num_steps = 0
        self._changed = False
        """Whether a fork has left what was recorded."""
        self._due = False
        """Whether agents that are out report before the next choice."""
        self._fused: set[str] = set()
        self._answer = ""
        self._own_draws = True
        """Whether draws are events of their own. Not where a trace from before that is run again."""

    async def orchestrate(self, me: Agent) -> None:
        """The orchestrator's program."""
        in_vain = 0
        if (recording := me.run.writer.recording) is not None:
            self._own_draws = not any(map(self._has_draw_within, recording.events.values()))
        for text in self.board.game.reports(self.state):
            await me.spawn(self.board.game.roles[0], f"say {text}")
        while not me.done():
            if self.view.decision is None:
                await self._hear(me)
                await me.stop(self._answer)
                return
            await self._assemble(me)
            if not in_vain or not (me.inbox or me.unread):
                me.note(self.view.text)
            before = self._num_steps
            await me.turn(self._carry_out)
            in_vain = 0 if self._num_steps > before else in_vain + 1
            if in_vain > me.role.max_invalid and not me.invalid and not me.failures:
                me.run.give_up(me, f"what it chose was refused {in_vain} times in a row")

    async def _assemble(self, me: Agent) -> None:
        """Reports that are due come in, and whoever the commands speak to is there."""
        if self._due or self.view.decision == "aggregate":
            await self._hear(me)
        for name in self.view.speaks_to:
            role, number = self._meant(name)
            while self._find(me, name) is None and me.num_children.get(role, 0) < (number or 1):
                await me.spawn(role, "stand by")

    async def _hear(self, me: Agent) -> None:
        """Everyone who is out reports."""
        self._due = False
        out = [child for child in me.children if child.state == "active"]
        for child in out:
            me.run.wake(child)
        if out:
            await me.run.wait(me, tuple(child.id for child in out), "all")

    def _meant(self, name: str) -> tuple[str, int | None]:
        """`worker` is a role's latest agent, `worker-2` its second; any other word is the latest agent of all."""
        roles = self.board.game.roles
        role, dash, number = name.rpartition("-")
        if dash and role in roles:
            return role, int(number)
        return name if name in roles else roles[0], None

    def _find(self, me: Agent, name: str) -> Agent | None:
        role, number = self._meant(name)
        for child in reversed(me.children):
            if number is not None:
                named = child.id == f"{role}{number}"
            else:
                named = child.role.name == name or name != role
            if named and child.state != "dead":
                return child
        return None

    async def _carry_out(self, me: Agent, action: Action, said: Said, extra: dict[str, Any]) -> None:
        """What an option does (see `baton.team.agent.CarryOut`)."""
        view = self.view
        option = view.moves.get(_LINES.render(action))
        if option is None or view.decision is None:
            raise Forbidden(f"that is not open to you now. Choose one of: {'; '.join(view.options)}")
        step = self._recorded(me, option) or self._drawn(me, option)
        told = {"state": view.key, "option": option}
        followed = {"reward": step.reward, "next": state_key(step.after)}
        drawn = step.by_chance and self._own_draws
        said = structs.replace(said, decision=view.decision)
        event_id = me.next_event_id()
        if not await self._do(me, action, said, extra | {"step": told if drawn else told | followed}):
            return
        if drawn:
            text = f"reward {step.reward + 0.0:g}, then {followed['next']}"
            word = self.board.game.word(self.state, step.after)
            me.run.writer.emit_draw(me, event_id, text=text, extra={"draw": followed}, word=word)
        self._num_draws += step.by_chance
        self._num_steps += 1
        self._due = self._due or step.by_chance or isinstance(action, Wait)
        self._answer = option.partition(" ")[2] or option
        self.state = step.after
        self.view = self.board.view(step.after, self._surface)

    def _drawn(self, me: Agent, option: str) -> GameStep:
        """What follows by the next key. What a fork runs anew under another replicate has other luck."""
        key, replicate = f"{self._stream}/{self._num_draws + 1}", me.run.replicate
        return self.board.follow(self.state, option, f"{key}/{replicate}" if replicate else key)

    def _recorded(self, me: Agent, option: str) -> GameStep | None:
        """What followed before, where luck that no key gives again was recorded and nothing has changed."""
        run, writer = me.run, me.run.writer
        if writer.recording is None:
            return None
        if not run.replicate or ((self._changed or me.diverged) and not writer.strict):
            return None
        events = writer.recording.events
        event = events.get(me.next_event_id())
        told = event.extra.get("step") if event is not None else None
        drawn = events.get(draw_id(me.next_event_id()))
        followed = told if told is None or "next" in told or drawn is None else drawn.extra.get("draw")
        if (
            told is None
            or (told["state"], told["option"]) != (self.view.key, option)
            or followed is None
            or "next" not in followed
        ):
            self._changed = True
            return None
        return GameStep(
            option=option,
            reward=followed["reward"],
            after=read_state(followed["next"]),
            by_chance=self.board.is_lottery(self.state, option),
        )

    def _has_draw_within(self, event: Event) -> bool:
        """Whether a choice and what chance made of it were recorded as one event, as they were up to 0.2."""
        step = event.extra.get("step", {})
        return "next" in step and self.board.is_lottery(read_state(step["state"]), step["option"])

    async def _do(self, me: Agent, action: Action, said: Said, extra: dict[str, Any]) -> bool:
        """Carry an option out on the team. False: the budget or a bar said no, and that is written."""
        stops = said.decision == "stop"
        match action:
            case Spawn():
                before = len(me.children)
                await do(me, action, said, extra)
                return len(me.children) > before
            case Delegate(name, text) | Send(name, text):
                agent = self._there(me, name)
                again = isinstance(action, Delegate) and agent.state == "idle"
                await do(me, Delegate(agent.id, text) if again else Send(agent.id, text), said, extra)
                return bool(me.run.writer.events[-1].type == "message")
            case Cancel(names):
                await do(me, Cancel(tuple(self._there(me, name).id for name in names)), said, extra)
            case Stop() if stops:
                await do(me, action, said, extra)
            case Aggregate(method):
                self._fuse(me, method, said, extra)
            case _:  # on this team nothing but a choice; whether play is over the game says
                went_on = {"went_on": True} if stops else {}
                me.run.writer.emit(
                    me,
                    "orchestrator_decision",
                    text=extra["step"]["option"],
                    said=said,
                    extra=extra | went_on,
                )
        return True

    def _there(self, me: Agent, name: str) -> Agent:
        agent = self._find(me, name)
        if agent is None:
            raise Forbidden(f"{name} is not there")
        return agent

    def _fuse(self, me: Agent, method: str, said: Said, extra: dict[str, Any]) -> None:
        """How reports count is the game's; that they are fused here, and which, is the trace's."""
        new = {who: event for who, (event, _) in me.results.items() if event not in self._fused}
        self._fused.update(new.values())
        causes: list[tuple[str, EdgeType]] = [(event, "aggregate") for event in new.values()]
        detail = {"method": method, "sources": list(new)}
        me.run.writer.emit(me, "aggregate", text=method, said=said, causes=causes, extra=extra | detail)


def begin(game: Game, stream: int) -> State:
    """Where play begins in this stream of luck."""
    bounds, branches = lottery(game.start())
    return branches[bisect(bounds, uniform(f"{stream}/0"))].state


@lru_cache(_REMEMBERED)
def _action(option: str) -> Action:
    (parsed,) = _LINES.parse(option, frozenset(VERBS))
    assert isinstance(parsed, Parsed), f"{option!r} is no command of the lines surface"
    return parsed.action
