"""Chat templates in the manner of the model families, for the tokenizer of `tiny_model`: their traits, in few words."""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

_END = "<|im_end|>"

QWEN = """
{%- if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}
{% endif %}Tools:{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
Call with <tool_call>.<|im_end|>
{% elif messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
{%- if m.role == 'user' or (m.role == 'system' and not loop.first) %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% elif m.role == 'assistant' %}<|im_start|>assistant
{% if loop.index0 > ns.last and m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}{% for call in m.tool_calls or [] %}{% if m.content or not loop.first %}
{% endif %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% elif m.role == 'tool' %}<|im_start|>user
<tool_response>
{{ m.content }}
</tool_response><|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}""".strip()
"""Tools in the system's message, calls in tags, thoughts dropped before the last question."""

LLAMA = """
{%- for m in messages %}
{%- if m.role == 'assistant' and m.tool_calls %}
{%- if m.tool_calls | length != 1 %}{{ raise_exception('only single tool-calls') }}{% endif %}
{%- set call = m.tool_calls[0].function -%}
<|im_start|>assistant
{"name": "{{ call.name }}", "parameters": {{ call.arguments | tojson }}}<|im_end|>
{%- elif m.role == 'tool' %}<|im_start|>ipython
{{ m.content | tojson }}<|im_end|>
{%- else %}<|im_start|>{{ m.role }}
{% if m.role == 'user' and loop.index0 < 2 and tools %}{% for tool in tools %}{{ tool | tojson }}
{% endfor %}{% endif %}{{ m.content | trim }}<|im_end|>
{%- endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}""".strip()
"""Tools before the first question; one call at a time; results for `ipython`."""

MISTRAL = """
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
{%- if m.role == 'user' %}{% if tools and loop.index0 == ns.last -%}
[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]
{%- endif %}[INST]{{ m.content }}[/INST]
{%- elif m.role == 'assistant' and m.tool_calls %}[TOOL_CALLS][
{%- for call in m.tool_calls %}
{%- if call.id | length != 9 %}{{ raise_exception('ids have nine characters') }}{% endif %}
{{- call.function | tojson }}{% if not loop.last %}, {% endif %}{% endfor %}]<|im_end|>
{%- elif m.role == 'assistant' %}{{ m.content }}<|im_end|>
{%- elif m.role == 'tool' %}
{%- if messages[loop.index0 - 1].role == 'assistant' and not messages[loop.index0 - 1].tool_calls -%}
{{ raise_exception('a result of what?') }}{% endif %}[TOOL_RESULTS]{{ m.content }}[/TOOL_RESULTS]
{%- else %}{{ raise_exception('no ' + m.role) }}{% endif %}{% endfor %}""".strip()
"""Tools before the last question, so that its beginning changes; no system; a result only after its use."""

THINKS = """
{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' and '</think>' in m.content %}{{ m.content.split('</think>')[-1].lstrip() }}
{%- else %}{{ m.content }}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}""".strip()
"""An answer begins inside a thought, and earlier thoughts are always dropped; no tools."""


def two_for_one_tokenizer(template: str = QWEN) -> Any:
    """Bytes, whole words besides, and a second id for `A`: many rows of ids for one text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {char: i for i, char in enumerate(alphabet)}
    merges = [("t", "h"), ("th", "e"), ("A", "A"), ("i", "n")]
    for one, other in merges:
        vocab[one + other] = len(vocab)
    vocab["▲"] = len(vocab)
    raw = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.Sequence([decoders.Replace("▲", "A"), decoders.ByteLevel()])
    raw.add_special_tokens([AddedToken("<|im_start|>", special=True), AddedToken(_END, special=True)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=_END, pad_token=_END)
    tokenizer.chat_template = template
    return tokenizer
