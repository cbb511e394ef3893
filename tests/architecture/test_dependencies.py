"""No lower bound of a dependency allows a release with a known weakness. tests/architecture/advisories.toml is the kept list."""

import tomllib
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

HERE = Path(__file__).parent
KEPT: dict[str, Any] = tomllib.loads((HERE / "advisories.toml").read_text(encoding="utf-8"))
PROJECT: dict[str, Any] = tomllib.loads((HERE.parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DEVELOPING = {"test", "test-integrations", "lint", "bench", "docs"}
"""Extras that no user installs."""


def required() -> list[Requirement]:
    """What a user may get with persist."""
    extras = PROJECT["optional-dependencies"]
    assert set(extras) >= DEVELOPING
    texts = [*PROJECT["dependencies"], *(text for name, listed in extras.items() if name not in DEVELOPING for text in listed)]
    return [Requirement(text) for text in texts]


def weak(requirements: Iterable[Requirement], advisories: Iterable[dict[str, str]]) -> list[str]:
    """The advisories whose releases the lower bounds allow."""
    found = []
    for requirement in requirements:
        (lowest,) = [part.version for part in requirement.specifier if part.operator == ">="]
        for one in advisories:
            is_it = canonicalize_name(requirement.name) == one["package"]
            if is_it and SpecifierSet(one["affected"], prereleases=True).contains(lowest):
                found.append(f"{requirement}: {one['id']} ({one['what']}) concerns {one['affected']}")
    return found


def test_no_lower_bound_allows_a_known_weakness() -> None:
    assert not weak(required(), KEPT["advisory"])


def test_every_dependency_was_looked_up() -> None:
    assert {canonicalize_name(one.name) for one in required()} == set(KEPT["looked_up"])
    assert all(type(day) is date for day in KEPT["looked_up"].values())
    assert {one["package"] for one in KEPT["advisory"]} <= set(KEPT["looked_up"])


@pytest.mark.parametrize(
    ("bound", "count"), [("orjson>=3.10", 1), ("orjson>=3.11.6", 0), ("orjson[x]>=3.9.1; sys_platform == 'y'", 2)]
)
def test_a_bound_that_is_too_low_is_found(bound: str, count: int) -> None:
    assert len(weak([Requirement(bound)], KEPT["advisory"])) == count
