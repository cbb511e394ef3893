"""The house gets no heavier unseen: counts of files, lines and names as ceilings.

A change that takes something away lowers the ceiling to what it leaves. Room for a feature comes from what the feature replaces;
one that replaces nothing raises the ceilings by what it brings, in the commit that brings it.
"""

import ast
import re
from collections import Counter
from functools import cache

import pytest

from tests.architecture.sources import ROOT, Source, sources
from tests.lanes import MEASURED, NOT_QUICK, function

CEILINGS = {
    "persist: files": 482,
    "persist: lines": 94_350,
    "persist: lines of code": 68_250,
    "persist: names imported from persist": 7_760,
    "persist: definitions that share their name": 1_180,
    "tests: files": 692,
    "tests: lines": 111_900,
}
NEAR = 0.02
"""How far below its ceiling a count may be, as a part of it: a ceiling far above allows what it should refuse."""


def _code_lines(source: Source) -> int:
    """Lines with code: without blank lines, comments and what only documents."""
    documented = {
        line
        for node in source.nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    written = {
        line for line, text in enumerate(source.text.splitlines(), 1) if text.strip() and not text.lstrip().startswith("#")
    }
    return len(written - documented)


def _names_imported(source: Source) -> int:
    """Names that a module takes from other modules of the package."""
    return sum(
        len(node.names)
        for node in source.nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "persist"
    )


def _sharing(found: list[Source]) -> int:
    """Functions and classes of modules that are named like another one elsewhere: a reader who searches finds both."""
    defined = Counter(
        node.name
        for source in found
        for node in source.tree.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    )
    return sum(count for count in defined.values() if count > 1)


@cache
def counts() -> dict[str, int]:
    package, tests = sources("persist"), sources("tests")
    return {
        "persist: files": len(package),
        "persist: lines": sum(source.text.count("\n") for source in package),
        "persist: lines of code": sum(map(_code_lines, package)),
        "persist: names imported from persist": sum(map(_names_imported, package)),
        "persist: definitions that share their name": _sharing(package),
        "tests: files": len(tests),
        "tests: lines": sum(source.text.count("\n") for source in tests),
    }


@pytest.mark.parametrize("name", CEILINGS)
def test_no_count_is_above_its_ceiling(name: str) -> None:
    assert counts()[name] <= CEILINGS[name], f"{name}: take something away, or say in the commit what for the ceiling is raised"


@pytest.mark.parametrize("name", CEILINGS)
def test_a_ceiling_follows_its_count_down(name: str) -> None:
    assert counts()[name] >= CEILINGS[name] * (1 - NEAR), f"{name}: lower the ceiling"


def test_the_tests_that_take_long_are_there() -> None:
    """A test may be written in another file than the one that runs it."""
    words = {word for source in sources("tests") for word in re.findall(r"\w+", source.text)}
    places = [function(case).split("::") for case in MEASURED | NOT_QUICK]
    assert [(path, name) for path, name, *_ in places if name not in words or not (ROOT / path).is_file()] == []
