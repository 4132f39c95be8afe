"""A local model as a backend: the torch engine behind its tokenizer's chat template, tools and thoughts included."""

from __future__ import annotations

from typing import Literal

from baton.engine import read_options
from baton.engine.model_places import check_device_name, check_dtype_name, check_folder
from baton.engine.torch import PlainTemplate, TorchEngine
from baton.engine.torch.load import context_length, end_ids
from baton.errors import UsageError, nearest
from baton.serve.backends.engine import EngineBackend, EngineOptions
from baton.serve.backends.guided import AnswerGuides
from baton.serve.backends.prompts import EntryPrompts, PromptMaker
from baton.serve.backends.samplers import EngineSampler
from baton.serve.backends.template_prompts import TemplatePrompts
from baton.serve.tool_parsers import find_parser

FORM = "torch:DIR[?device=cuda&dtype=bfloat16&template=plain&tools=hermes&thinking=keep&max_tokens=1024]"


def over_engine(
    engine: TorchEngine,
    *,
    tools: str | None = None,
    thinking: Literal["template", "keep"] = "template",
    options: EngineOptions | None = None,
) -> EngineBackend:
    """A backend over a torch engine, which may answer others meanwhile.

    `tools` names a parser; None: the one for what the chat template shows. `thinking="keep"`: earlier thoughts stay in
    later prompts, whatever the template does with them.
    """
    parser = None if tools is None else find_parser(tools)
    context = context_length(engine.model)
    prompts: PromptMaker
    if getattr(engine.tokenizer, "chat_template", None):
        prompts = TemplatePrompts(
            engine.tokenizer, policy=engine.name, parser=parser, thinking=thinking, context=context
        )
    else:
        prompts = EntryPrompts(engine, parser, context=context, tokenizer=engine.tokenizer)
    options = options or EngineOptions()
    guides = _guides(engine) if options.guided else None
    return EngineBackend(EngineSampler(engine, guides, prompts.parser), prompts, options=options)


def _guides(engine: TorchEngine) -> AnswerGuides | None:
    """What holds answers to a form; None: llguidance is not there, or the tokenizer is none that it reads."""
    if not engine.watches:
        return None
    try:
        size = engine.model.config.vocab_size
        return AnswerGuides(
            engine.tokenizer, vocabulary=size, ends=sorted(end_ids(engine.model, engine.tokenizer))
        )
    except (ImportError, ValueError):
        return None


def torch_backend(rest: str) -> EngineBackend:
    """From what stands after `torch:`."""
    known = ("device", "dtype", "template", "tools", "thinking", "max_tokens")
    folder, given = read_options(rest, known)
    if not folder:
        raise UsageError(f"torch needs the folder of a model. Type: {FORM}")
    plain, thinking = given.get("template"), given.get("thinking", "template")
    if plain not in (None, "plain"):
        raise UsageError(f"template {plain!r} is not known. Expected plain, or nothing for the model's own.")
    if thinking not in ("template", "keep"):
        raise UsageError(f"thinking {thinking!r} is not known. {nearest(thinking, ('template', 'keep'))}")
    check_device_name(given.get("device"))
    check_dtype_name(given.get("dtype"))
    check_folder(folder)
    if "tools" in given:
        find_parser(given["tools"])
    engine = TorchEngine.open(
        folder,
        device=given.get("device"),
        dtype=given.get("dtype"),
        template=PlainTemplate() if plain else None,
    )
    if plain:
        engine.tokenizer.chat_template = None
    return over_engine(
        engine,
        tools=given.get("tools"),
        thinking=thinking,  # type: ignore[arg-type]  # one of two, checked above
        options=EngineOptions.of(given),
    )
