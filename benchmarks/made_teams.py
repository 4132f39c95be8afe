"""Made-up agent programs with known truth: who each call was by, who began whom, whose answer was heard where.

A case is drawn by a seed and a kind of difficulty. Agents run at the same time as each other, on a clock of their own,
and leave exchanges as `baton serve` would write them down; nothing in these says who asked.
"""

from __future__ import annotations

import heapq
import json
import random
from collections.abc import Generator
from typing import Any

from msgspec import Struct, field

from baton.serve.exchange import Ask, Exchange, Reply, ReplyChoice, ToolAsk, ToolOffer, Utterance

Steps = Generator[Any, Any, Any]


class Trait(Struct, frozen=True, kw_only=True):
    """What makes a kind of case hard."""

    depth: int = 2
    width: int = 3
    same_tasks: bool = False
    same_answers: bool = False
    templates: bool = False
    pieces: bool = False
    short: bool = False
    wrapped: bool = False
    """Results have words around the answer."""
    cut: bool = False
    """Results are the beginning of the answer."""
    retries: bool = False
    compacts: bool = False
    rewrites: bool = False
    """Histories tell tools as text, as smolagents does."""
    slides: bool = False
    """Histories lose their oldest messages."""
    continues: bool = False
    background: bool = False
    handoff: bool = False
    passes_on: bool = False
    """Agents hand their own task on, word for word."""
    one_instruction: bool = False
    """All agents have the same instruction and tools."""
    no_instruction: bool = False
    noise: bool = False
    """Ordinary tools are asked in the words of tasks."""
    looks_up_told: bool = False
    """Agents look up all that they were told, word for word, as they begin."""
    few_at_once: bool = False
    """The program runs two agents at a time; the others wait."""
    program: bool = False
    """No agent asks for others: the program runs them."""
    reworded: bool = False
    """Tools tell the agent something else than they were asked."""
    languages: bool = False


KINDS: dict[str, Trait] = {
    "plain": Trait(),
    "deep": Trait(depth=4, width=2),
    "wide": Trait(depth=1, width=9),
    "templates around tasks": Trait(templates=True, wrapped=True),
    "tasks in pieces": Trait(pieces=True, templates=True),
    "short tasks": Trait(short=True, depth=1),
    "languages": Trait(languages=True, templates=True),
    "results cut or wrapped": Trait(cut=True, wrapped=True),
    "same task in parallel": Trait(same_tasks=True, width=4),
    "same task, same answer": Trait(same_tasks=True, same_answers=True, width=4),
    "task handed on": Trait(passes_on=True, depth=3),
    "one instruction for all": Trait(one_instruction=True),
    "no instruction": Trait(no_instruction=True),
    "noise in tools": Trait(noise=True),
    "tasks looked up": Trait(same_tasks=True, templates=True, looks_up_told=True, few_at_once=True, width=4),
    "retries": Trait(retries=True),
    "compaction": Trait(compacts=True),
    "rewritten history": Trait(rewrites=True),
    "sliding history": Trait(slides=True),
    "continued agents": Trait(continues=True),
    "background agents": Trait(background=True),
    "handoff": Trait(handoff=True, depth=1),
    "program runs agents": Trait(program=True, depth=1),
    "reworded by the tool": Trait(reworded=True),
}
MIXED = "mixed"
_MIXABLE = (
    "same_tasks", "same_answers", "templates", "pieces", "short", "wrapped", "cut", "retries", "compacts", "rewrites",
    "slides", "continues", "background", "handoff", "passes_on", "one_instruction", "no_instruction", "noise",
    "languages",
)  # fmt: skip

_TONGUES = {
    "en": "find weigh river price model count garden seven report check old table north paper train open city",
    "de": "Prüfe Straße Gebühr zähle Bücher größte Übersicht Land Frage schnell süß Zug",
    "zh": "查找 价格 城市 报告 计算 最大 河流 表格 模型 花园 检查 北方",
    "ar": "ابحث سعر مدينة تقرير احسب أكبر نهر جدول نموذج حديقة",
    "mix": '🙂 naïve Ωmega ключ データ 파일 café x² ‘quoted’ "said" \\back {brace}',
}
_WORDS = {tongue: words.split() for tongue, words in _TONGUES.items()}
_ROLES = ("researcher", "writer", "checker", "planner", "reader", "counter", "critic", "coder", "clerk")
_TEMPLATES = (
    "{}",
    "Task: {}\n\nAnswer in one sentence.",
    "You have been given this by your manager:\n---\n{}\n---\nBe brief. Today is Monday.",
    "<task>{}</task>",
)
_PIECES = "Work on {topic} with the style {style}, at most {words} words."


class Truth(Struct):
    """What really happened."""

    agent_of: dict[str, str] = field(default_factory=dict)
    """Exchange -> agent."""
    spawned: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Agent -> its parent and the id of the tool use that began it."""
    heard: set[tuple[str, str]] = field(default_factory=set)
    """Exchange of an agent's answer, exchange of whoever was told it."""
    handed: dict[str, str] = field(default_factory=dict)
    """Agent -> who handed over to it."""


class MadeTeam(Struct):
    """A session and its truth."""

    exchanges: list[Exchange]
    truth: Truth


class _Asked(Struct):
    messages: list[Utterance]
    answer: Utterance
    tools: tuple[str, ...]
    agent: str


class _All(Struct):
    steps: list[Steps]
    at_once: int | None = None


class _Sleep(Struct):
    seconds: float


class _Later(Struct):
    steps: Steps


class _Clock:
    """Runs steps that wait for answers and for each other."""

    def __init__(self, chance: random.Random, truth: Truth) -> None:
        self.chance = chance
        self.truth = truth
        self.exchanges: list[Exchange] = []
        self._queue: list[tuple[float, int, Any, Any]] = []
        self._count = 0

    def run(self, steps: Steps) -> None:
        self._push(1000.0, (steps, None), None)
        while self._queue:
            now, _, task, value = heapq.heappop(self._queue)
            self._go(now, task, value)

    def _push(self, at: float, task: Any, value: Any) -> None:
        self._count += 1
        heapq.heappush(self._queue, (at, self._count, task, value))

    def _go(self, now: float, task: Any, value: Any) -> None:
        steps, done = task
        try:
            wanted = steps.send(value)
        except StopIteration as end:
            if done is not None:
                done(now, end.value)
            return
        if isinstance(wanted, _Asked):
            took = self.chance.uniform(0.1, 2.0)
            self._push(now + took + 0.001, task, self._exchange(wanted, now, took))
        elif isinstance(wanted, _Sleep):
            self._push(now + wanted.seconds, task, None)
        elif isinstance(wanted, _Later):
            self._push(now + self.chance.uniform(0.0, 0.01), (wanted.steps, None), None)
            self._push(now, task, None)
        else:
            self._all(now, wanted.steps, task, wanted.at_once or len(wanted.steps))

    def _all(self, now: float, many: list[Steps], task: Any, at_once: int) -> None:
        results: list[Any] = [None] * len(many)
        left = len(many)
        waiting = list(enumerate(many))[at_once:]
        if not many:
            self._push(now, task, results)

        def finish(place: int) -> Any:
            def done(at: float, value: Any) -> None:
                nonlocal left
                results[place] = value
                left -= 1
                if waiting:
                    following, more = waiting.pop(0)
                    self._push(at + 0.001, (more, finish(following)), None)
                if not left:
                    self._push(at + 0.001, task, results)

            return done

        for place, steps in enumerate(many[:at_once]):
            self._push(now + self.chance.uniform(0.0, 0.01), (steps, finish(place)), None)

    def _exchange(self, wanted: _Asked, now: float, took: float) -> Exchange:
        number = len(self.exchanges)
        made = Exchange(
            session="made", id=f"x{number}", number=number, begun=now, duration_s=took,
            ask=Ask(
                dialect="chat", model="m", messages=tuple(wanted.messages),
                tools=tuple(ToolOffer(name=name) for name in wanted.tools),
            ),
            reply=Reply(choices=(ReplyChoice(message=wanted.answer),), policy="made"),
        )  # fmt: skip
        self.exchanges.append(made)
        self.truth.agent_of[made.id] = wanted.agent
        return made


class _Program:
    """One made-up program."""

    def __init__(self, trait: Trait, chance: random.Random) -> None:
        self.trait = trait
        self.chance = chance
        self.truth = Truth()
        self.uses = 0
        self.agents = 0
        self.shared_answer = self.text(6)
        self.heard: dict[str, list[str]] = {}
        """Agent -> exchanges whose answers its next ask tells."""
        self.late: dict[str, list[tuple[str, str]]] = {}
        """Agent -> what it is to be told of those it let go, and which exchange said it."""
        self.memory: dict[str, tuple[list[Utterance], str, tuple[str, ...]]] = {}

    def text(self, words: int) -> str:
        tongue = self.chance.choice(list(_WORDS)) if self.trait.languages else "en"
        return (
            " ".join(self.chance.choice(_WORDS[tongue]) for _ in range(words))
            + f" {self.chance.randrange(10**5)}"
        )

    def task(self) -> str:
        if self.trait.short:
            return self.chance.choice(("Paris", "42", "a", "x1", "Rome?", "go", "B")) + str(
                self.chance.randrange(99)
            )
        return self.text(self.chance.randrange(5, 30))

    def use(self, name: str, arguments: dict[str, Any]) -> ToolAsk:
        self.uses += 1
        text = json.dumps(arguments, ensure_ascii=self.chance.random() < 0.5)
        return ToolAsk(id=f"u{self.uses}", name=name, arguments=text)

    def name(self) -> str:
        self.agents += 1
        return f"agent{self.agents}"

    def instruction(self, role: str) -> str:
        if self.trait.no_instruction:
            return ""
        if self.trait.one_instruction:
            return "You are a helpful assistant that works for others."
        return f"You are the {role}. " + "Do what you are asked and nothing else. " * 3

    # -- agents -----------------------------------------------------------------------------------

    def ask(self, me: str, messages: list[Utterance], answer: Utterance, tools: tuple[str, ...]) -> Steps:
        """The exchange that gave the answer. Whoever was heard in it was heard when it was first asked."""
        shown = self.told(messages)
        heard = self.heard.pop(me, [])
        made = None
        if self.trait.retries and self.chance.random() < 0.3:
            wrong = _says("(malformed) " + self.text(3))
            made = yield _Asked(shown, wrong, tools, me)
            self.truth.heard.update((one, made.id) for one in heard)
        first, made = made, (yield _Asked(shown, answer, tools, me))
        if first is None:
            self.truth.heard.update((one, made.id) for one in heard)
        messages.append(answer)
        return made

    def told(self, messages: list[Utterance]) -> list[Utterance]:
        """The history as the program sends it."""
        shown = list(messages)
        if self.trait.slides and len(shown) > 6:
            head = 1 if shown[0].speaker == "system" else 0
            start = len(shown) - 4
            while shown[start].speaker == "tool":  # results stay with the answer that asked for them
                start -= 1
            shown = shown[: head + 1] + shown[max(start, head + 1) :]
        if self.trait.rewrites:
            shown = [_as_text(message) for message in shown]
        return shown

    def agent(self, me: str, role: str, told: str, depth: int, own_task: str) -> Steps:
        """Works on what it was told; gives its answer and the exchange that said it."""
        tools = ("lookup", "delegate", *(f"ask_{name}" for name in _ROLES[:3]))
        system = self.instruction(role)
        messages = [Utterance(speaker="system", text=system)] if system else []
        messages.append(Utterance(speaker="user", text=told))
        self.memory[me] = (messages, role, tools)
        return (yield from self.work(me, depth, told if self.trait.looks_up_told else own_task))

    def work(self, me: str, depth: int, own_task: str) -> Steps:
        messages, _, tools = self.memory[me]
        known: list[str] = []
        for turn in range(self.chance.randrange(1, 4)):
            if self.trait.compacts and turn and self.chance.random() < 0.5:
                yield from self.compact(me)
                messages = self.memory[me][0]
            looks_up = self.trait.looks_up_told and not turn and depth < self.trait.depth
            if depth and not looks_up and self.chance.random() < 0.75:
                wanted = self.delegation(known, own_task)
            else:
                wanted = [
                    ("lookup", {"q": self.noise(own_task)}, None) for _ in range(self.chance.randrange(1, 3))
                ]
            uses = [self.use(name, arguments) for name, arguments, _ in wanted]
            words = self.text(4) if self.chance.random() < 0.5 else ""
            yield from self.ask(me, messages, _says(words, *uses), tools)
            steps = [
                self.child(me, use, other, depth) if other is not None else self.lookup()
                for use, (_, _, other) in zip(uses, wanted, strict=True)
            ]
            results = yield _All(steps, 2 if self.trait.few_at_once else None)
            for use, (text, by, late) in zip(uses, results, strict=True):
                messages.append(Utterance(speaker="tool", text=text, answers=use.id, name=use.name))
                self.heard.setdefault(me, []).extend([by] if by is not None else [])
                known += [late] if late is not None else []
        for text, by in self.late.pop(me, []):
            messages.append(Utterance(speaker="user", text=text))
            self.heard.setdefault(me, []).append(by)
        answer = self.shared_answer if self.trait.same_answers and depth < self.trait.depth else self.text(8)
        made = yield from self.ask(me, messages, _says(answer), tools)
        return answer, made.id

    def noise(self, own_task: str) -> str:
        return own_task if self.trait.noise or self.trait.looks_up_told else self.text(3)

    def lookup(self) -> Steps:
        yield _Sleep(self.chance.uniform(0.05, 0.5))
        return self.text(5), None, None

    def delegation(self, known: list[str], own_task: str) -> list[tuple[str, dict[str, Any], Any]]:
        if known and self.trait.continues and self.chance.random() < 0.6:
            whom, task = self.chance.choice(known), self.task()
            return [("send_message", {"to": whom, "message": task}, ("again", whom, task))]
        count = self.chance.randrange(1, self.trait.width + 1)
        same = self.task()
        found: list[tuple[str, dict[str, Any], Any]] = []
        role = self.chance.choice(_ROLES[:3])
        for _ in range(count):
            task = own_task if self.trait.passes_on else same if self.trait.same_tasks else self.task()
            if not self.trait.same_tasks:
                role = self.chance.choice(_ROLES[:3])
            arguments: dict[str, Any] = {"task": task}
            told = task
            if self.trait.pieces:
                arguments = {"topic": task, "style": self.text(2), "words": self.chance.randrange(10, 99)}
                told = _PIECES.format(**arguments)
            elif self.trait.templates:
                told = self.chance.choice(_TEMPLATES).format(task)
            if self.trait.reworded:
                told = self.text(12)
            if self.trait.noise and self.chance.random() < 0.5:
                found.append(("lookup", {"q": task}, None))
            found.append((f"ask_{role}", arguments, ("new", role, told, task)))
        return found

    def child(self, me: str, use: ToolAsk, what: Any, depth: int) -> Steps:
        if what[0] == "again":
            _, whom, task = what
            self.memory[whom][0].append(Utterance(speaker="user", text=task))
            answer, by = yield from self.work(whom, 0, task)
            return self.result(answer), by, None
        _, role, told, task = what
        name = self.name()
        self.truth.spawned[name] = (me, use.id)
        if self.trait.background and self.chance.random() < 0.6:
            yield _Later(self.behind(me, name, role, told, depth - 1, task))
            return f"started {name}", None, None
        yield _Sleep(self.chance.uniform(0.0, 0.2))
        answer, by = yield from self.agent(name, role, told, depth - 1, task)
        return self.result(answer), by, name

    def behind(self, me: str, name: str, role: str, told: str, depth: int, task: str) -> Steps:
        answer, by = yield from self.agent(name, role, told, depth, task)
        self.late.setdefault(me, []).append((f"<notification>{name} says: {answer}</notification>", by))

    def result(self, answer: str) -> str:
        if self.trait.cut and len(answer) > 30:
            answer = answer[: self.chance.randrange(20, len(answer))]
        if self.trait.wrapped:
            return self.chance.choice(
                (f"Result: {answer}\n(done)", json.dumps({"output": answer, "ok": True}), answer)
            )
        return answer

    def compact(self, me: str) -> Steps:
        messages, role, tools = self.memory[me]
        asked = Utterance(
            speaker="user", text="Write a summary of everything so far, so that you can go on from it."
        )
        summary = "So far: " + self.text(25)
        yield from self.ask(me, [*messages, asked], _says(summary), tools)
        head = [message for message in messages[:1] if message.speaker == "system"]
        on = Utterance(
            speaker="user", text=f"This conversation goes on from an earlier one. {summary}\nGo on."
        )
        self.memory[me] = ([*head, on], role, tools)

    # -- programs ---------------------------------------------------------------------------------

    def main(self) -> Steps:
        me = self.name()
        task = self.text(10)
        if self.trait.program:
            yield from self.workflow(task)
        elif self.trait.handoff:
            yield from self.handing(me, task)
        else:
            yield from self.agent(me, "lead", task, self.trait.depth, task)

    def handing(self, me: str, task: str) -> Steps:
        """The same conversation under one instruction after the other."""
        other = self.name()
        talk = [Utterance(speaker="user", text=task)]
        order = [me, other, me] if self.chance.random() < 0.4 else [me, other]
        names = {me: "triage", other: "expert"}
        self.truth.handed[other] = me
        for place, who in enumerate(order):
            head = Utterance(speaker="system", text=f"You are the {names[who]}. Be kind.")
            if place + 1 < len(order):
                use = self.use(f"transfer_to_{names[order[place + 1]]}", {})
                answer = _says("", use)
                yield _Asked([head, *talk], answer, ("transfer",), who)
                done = Utterance(speaker="tool", text='{"assistant": "ok"}', answers=use.id, name=use.name)
                talk += [answer, done]
                continue
            use = self.use("ask_reader", {"task": (inner := self.task())})
            answer = _says("", use)
            yield _Asked([head, *talk], answer, ("ask_reader",), who)
            ((text, by, _),) = yield _All([self.child(who, use, ("new", "reader", inner, inner), 1)])
            talk += [answer, Utterance(speaker="tool", text=text, answers=use.id, name=use.name)]
            made = yield _Asked([head, *talk], _says(self.text(5)), ("ask_reader",), who)
            if by is not None:
                self.truth.heard.add((by, made.id))

    def workflow(self, task: str) -> Steps:
        """A plan, workers side by side, and one who puts it together: all run by the program."""
        topics = [self.task() for _ in range(self.chance.randrange(2, self.trait.width + 2))]
        steps = [self.solo("planner", task, "\n".join(topics))]
        yield _All(steps)
        found = yield _All([self.solo("worker", topic, self.text(7)) for topic in topics])
        yield _All([self.solo("merger", "Put together:\n" + "\n".join(found), self.text(9))])

    def solo(self, role: str, told: str, answer: str) -> Steps:
        name = self.name()
        self.truth.spawned[name] = ("program", "")
        head = Utterance(speaker="system", text=f"You are the {role} of this graph.")
        yield _Asked([head, Utterance(speaker="user", text=told)], _says(answer), (), name)
        return answer


def _says(text: str, *uses: ToolAsk) -> Utterance:
    return Utterance(speaker="assistant", text=text, uses=uses)


def _as_text(message: Utterance) -> Utterance:
    if message.uses:
        said = [{"function": {"name": use.name, "arguments": use.arguments}} for use in message.uses]
        return Utterance(speaker="assistant", text=f"{message.text}\nCalling tools:\n{said}")
    if message.speaker == "tool":
        return Utterance(speaker="user", text=f"Observation:\n{message.text}")
    return message


def made_team(kind: str, seed: int) -> MadeTeam:
    """One case; the same kind and seed give the same one."""
    chance = random.Random(f"{kind}/{seed}")
    trait = KINDS.get(kind)
    if trait is None:
        names = chance.sample(_MIXABLE, chance.randrange(2, 5))
        trait = Trait(
            depth=chance.randrange(1, 4), width=chance.randrange(1, 5), **dict.fromkeys(names, True)
        )
    program = _Program(trait, chance)
    clock = _Clock(chance, program.truth)
    clock.run(program.main())
    return MadeTeam(exchanges=clock.exchanges, truth=program.truth)
