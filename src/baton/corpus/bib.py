"""BibTeX of records, in characters that any BibTeX reads.

First authors are all that the records know, so `and others` follows, unless somebody wrote alone.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from baton.corpus.record import Paper

_JOURNALS = {
    "Mathematics of Operations Research",
    "Advances in Complex Systems",
    "TMLR",
    "Nature 2025",
}
_PAGES = {"Tech Report", "Tech Blog", "Blog Post", "Documentation", "Engineering Blog"}
_ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0308": '"', "\u030c": "v", "\u0327": "c",
}  # fmt: skip
_SPECIAL = {"–": "--", "—": "---", "’": "'", "×": "$\\times$", "ß": "{\\ss}", "ø": "{\\o}"}


def bibtex(papers: Iterable[Paper]) -> str:
    """The entries, in the order given."""
    return "\n".join(_entry(paper) for paper in papers)


def _entry(paper: Paper) -> str:
    kind, place = _kind(paper)
    fields = {
        "title": f"{{{_tex(paper.title)}}}",
        "author": _author(paper),
        **place,
        "year": str(paper.year),
    }
    if paper.arxiv is not None:
        fields |= {"eprint": paper.arxiv, "archiveprefix": "arXiv"}
    fields["url"] = paper.links[0]
    lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
    return f"@{kind}{{{paper.key},\n{lines}\n}}\n"


def _kind(paper: Paper) -> tuple[str, dict[str, str]]:
    venue = paper.venue
    if venue in _JOURNALS:
        return "article", {"journal": _tex(re.sub(r" \d{4}$", "", venue))}
    if venue in _PAGES:
        return "misc", {"howpublished": _tex(venue)}
    if venue.startswith("arXiv"):
        return "misc", {}
    if "ubmission" in venue:
        return "misc", {"howpublished": _tex(venue)}
    return "inproceedings", {"booktitle": _tex(venue)}


def _author(paper: Paper) -> str:
    """A person has a comma in the name; without one it is a company or a team."""
    name = _tex(paper.first_author)
    if "," not in name:
        return f"{{{name}}}"
    return name if paper.sole_author else f"{name} and others"


def _tex(text: str) -> str:
    """Plain text as TeX: specials escaped, accents written out."""
    text = re.sub(r"([&%$#_{}])", r"\\\1", text)
    return "".join(_character(char) for char in text)


def _character(char: str) -> str:
    if char.isascii():
        return char
    if char in _SPECIAL:
        return _SPECIAL[char]
    parts = unicodedata.normalize("NFD", char)
    if len(parts) == 2 and parts[0].isascii() and parts[1] in _ACCENTS:
        return f"{{\\{_ACCENTS[parts[1]]}{{{parts[0]}}}}}"
    return char
