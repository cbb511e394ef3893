"""Docstrings and comments can be read alone: each names its subject, for somebody who has read nothing before it."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator

from tests.architecture.sources import ROOT, Source, sources

SOURCES = sources("persist", "alembic", "examples")

STARTS_WITHOUT_SUBJECT = re.compile(r"(?:Of|The same|The opposite|They|Them|Those|These|It|Its|Their|That|As above|Likewise)\b")
NAMES_NOBODY = re.compile(r"\b(?:whoever|whomever|whichever way|meanwhile|nobody's|anybody's|of ours|of theirs)\b", re.IGNORECASE)

_ERRORS = "|".join(
    node.name for node in ast.parse((ROOT / "persist/errors.py").read_text("utf-8")).body if isinstance(node, ast.ClassDef)
)
_CLAUSE_GOES_ON = r"[.;,]|\s(?:if|for|without|unless|while|once|after|where|past|when|beyond|at|otherwise)\b|$"
BARE_ERROR = re.compile(rf"(?:\A|[.;]\s+|\n\s*\n\s*)(?:{_ERRORS}|RequirementMissed|ValueError)(?={_CLAUSE_GOES_ON})")
"""The name of an error that stands for a clause, as in "The session; NotFound." It has a verb: "Raises NotFound." """


def _comments(source: Source) -> Iterator[tuple[int, str]]:
    """Each run of lines that are comments alone, as one text, and each comment behind code."""
    last, start, words = -1, 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type != tokenize.COMMENT or re.match(r"# ?(?:noqa|type: ignore|pragma|!)", token.string):
            continue
        line, alone = token.start[0], not token.line[: token.start[1]].strip()
        if words and not (alone and line == last + 1):
            yield start, " ".join(words)
            words = []
        start = start if words else line
        words.append(token.string.lstrip("# "))
        last = line if alone else -1
    if words:
        yield start, " ".join(words)


def test_a_docstring_names_its_subject() -> None:
    found = []
    for source in SOURCES:
        for line, text in source.docstrings().items():
            if STARTS_WITHOUT_SUBJECT.match(text):
                found.append(f"{source.name}:{line}: {text[:60]}")
    assert found == []


def test_an_error_that_is_raised_has_a_verb() -> None:
    found = []
    for source in SOURCES:
        for line, text in source.docstrings().items():
            if hit := BARE_ERROR.search(text):
                found.append(f"{source.name}:{line}: {hit.group().strip()}")
    assert found == []


def test_nobody_is_left_without_a_name() -> None:
    found = []
    for source in SOURCES:
        if not NAMES_NOBODY.search(" ".join(source.text.replace("#", " ").split())):  # comments take long to find
            continue
        for line, text in (*source.docstrings().items(), *_comments(source)):
            if hit := NAMES_NOBODY.search(text):
                found.append(f"{source.name}:{line}: {hit.group()}")
    assert found == []
