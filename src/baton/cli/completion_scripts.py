"""The scripts of `baton completion`, one for each shell. They are made of the same table and start no program."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from baton.cli.completion import CommandPlace, CommandSlot

_PATH = "@path"

# The table is a function of a key: `baton#1` the first word, `baton run:` the options of a command, `baton run:--out`
# the values of one. `_baton_state` walks the words that are typed already and leaves where that is.
_TABLE = """_baton_words() {{
    case "$1" in
{rows}
    esac
}}

_baton_state() {{
    _baton_key=baton _baton_last='' _baton_at=1
    local word
    for word in "$@"; do
        if [ -n "$_baton_last" ]; then
            _baton_last=''
            continue
        fi
        case "$word" in
            -*=*) ;;
            -*) [ -n "$(_baton_words "$_baton_key:$word")" ] && _baton_last=$word ;;
            *)
                if [ -n "$(_baton_words "$_baton_key $word:")" ]; then
                    _baton_key="$_baton_key $word" _baton_at=1
                else
                    _baton_at=$((_baton_at + 1))
                fi
                ;;
        esac
    done
}}

_baton_candidates() {{
    local found
    if [ -n "$_baton_last" ]; then
        found=$(_baton_words "$_baton_key:$_baton_last")
    else
        case "$1" in
            -*) found=$(_baton_words "$_baton_key:") ;;
            *)
                found=$(_baton_words "$_baton_key#$_baton_at")
                [ -n "$found" ] || found=$(_baton_words "$_baton_key#+")
                ;;
        esac
    fi
    [ "$found" = {path} ] || printf '%s\\n' "$found"
}}
"""

_BASH = """# Completion of baton for bash, made by: baton completion bash
{table}
_baton() {{
    local line=${{COMP_LINE:0:COMP_POINT}} cur='' colon i
    local -a words
    read -ra words <<< "$line"
    if [[ $line != *[[:space:]] ]]; then
        i=$((${{#words[@]}} - 1))
        cur=${{words[i]}}
        unset "words[i]"
    fi
    _baton_state "${{words[@]:1}}"
    if [[ $cur == --*=* ]]; then
        _baton_last=${{cur%%=*}} cur=${{cur#*=}}
    fi
    local IFS=$'\\n'
    COMPREPLY=($(compgen -W "$(_baton_candidates "$cur")" -- "$cur"))
    if [[ $cur == *:* && $COMP_WORDBREAKS == *:* ]]; then
        colon=${{cur%"${{cur##*:}}"}}
        for i in "${{!COMPREPLY[@]}}"; do
            COMPREPLY[i]=${{COMPREPLY[i]#"$colon"}}
        done
    fi
}}

complete -o default -o bashdefault -F _baton baton
"""

_ZSH = """#compdef baton
# Completion of baton for zsh, made by: baton completion zsh
{table}
_baton() {{
    local found
    _baton_state "${{(@)words[2,CURRENT-1]}}"
    if [[ $PREFIX == --*=* ]]; then
        _baton_last=${{PREFIX%%=*}}
        compset -P '*='
    fi
    found=$(_baton_candidates "$PREFIX")
    if [[ -n $found ]]; then
        compadd -- "${{(@f)found}}"
    else
        _files
    fi
}}

if [ "$funcstack[1]" = _baton ]; then
    _baton "$@"
else
    compdef _baton baton
fi
"""


# fish's own test of a command looks for its name anywhere, and a folder may be called `run`.
_FISH = """# Completion of baton for fish, made by: baton completion fish
function __baton_at
    set -l typed (commandline -opc)
    set -l last (math 1 + (count $argv))
    test (count $typed) -ge $last; and test "$typed[2..$last]" = "$argv"
end
function __baton_ends
    test (count (commandline -opc)) -eq $argv[1]
end
"""


def bash(places: Sequence[CommandPlace]) -> str:
    """For bash 3.2 and later; the package bash-completion is not needed."""
    return _BASH.format(table=_table(places))


def zsh(places: Sequence[CommandPlace]) -> str:
    """For zsh, from a folder of `fpath` or by `source`."""
    return _ZSH.format(table=_table(places))


def fish(places: Sequence[CommandPlace]) -> str:
    """For fish: a line for everything that can be typed."""
    lines = [*_FISH.splitlines(), "complete -c baton -e"]
    about = {place.path: place.about for place in places}
    for place in places:
        seen = _fish_place(place)
        for part in place.parts:
            told = about.get((*place.path, part), "")
            lines.append(f"complete -c baton -f -n {_q(seen)} -a {_q(part)} -d {_q(told)}")
        lines += [_fish_slot(seen, slot) for slot in place.slots if slot.options or slot.words]
    return "\n".join(lines) + "\n"


SHELLS: dict[str, Callable[[Sequence[CommandPlace]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


def _table(places: Sequence[CommandPlace]) -> str:
    rows: list[str] = []
    for place in places:
        key = " ".join(("baton", *place.path))
        options = [option for slot in place.slots for option in slot.options]
        rows.append(_row(f"{key}:", options))
        if place.parts:
            rows.append(_row(f"{key}#1", place.parts))
        number = 0
        for slot in place.slots:
            if not slot.options:
                number += 1
                rows.append(_row(f"{key}#{'+' if slot.repeated else number}", slot.words or (_PATH,)))
            elif slot.takes_value:
                rows += [_row(f"{key}:{option}", slot.words or (_PATH,)) for option in slot.options]
    return _TABLE.format(rows="\n".join(rows), path=_PATH)


def _row(key: str, words: Sequence[str]) -> str:
    return f"        {shlex.quote(key)}) printf '%s\\n' {' '.join(map(shlex.quote, words))} ;;"


def _fish_place(place: CommandPlace) -> str:
    if not place.path:
        return "__baton_ends 1"
    at = f"__baton_at {' '.join(place.path)}"
    return f"{at}; and __baton_ends {1 + len(place.path)}" if place.parts else at


def _fish_slot(seen: str, slot: CommandSlot) -> str:
    named = "".join(
        f" -l {option[2:]}" if option.startswith("--") else f" -s {option[1:]}" for option in slot.options
    )
    value = f" -x -a {_q(' '.join(slot.words))}" if slot.words else " -r" if slot.takes_value else ""
    if not slot.options:
        value = f" -a {_q(' '.join(slot.words))}"
    return f"complete -c baton -n {_q(seen)}{named}{value} -d {_q(slot.about)}"


def _q(text: str) -> str:
    """A word of fish: only the backslash and the quote mean something between quotes."""
    plain = " ".join(text.split()).replace("%%", "%").replace("\\", "\\\\").replace("'", "\\'")
    return f"'{plain}'"
