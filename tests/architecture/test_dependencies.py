"""No bound of a dependency allows a release with a known weakness. tests/architecture/advisories.toml is the kept list."""

import tomllib
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import Specifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.cases import each

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
    """The advisories of which the bounds allow an affected release, whether or not it is the lowest one."""
    found = []
    for requirement in requirements:
        assert any(part.operator == ">=" for part in requirement.specifier), requirement
        for one in advisories:
            is_it = canonicalize_name(requirement.name) == one["package"]
            if is_it and _overlap(SpecifierSet(str(requirement.specifier)), SpecifierSet(one["affected"])):
                found.append(f"{requirement}: {one['id']} ({one['what']}) concerns {one['affected']}")
    return found


def _overlap(allowed: SpecifierSet, affected: SpecifierSet) -> bool:
    """Whether a version may be in both. If any is, then so is one at an edge of either, or right behind one."""
    edges = {edge for specifiers in (allowed, affected) for part in specifiers for edge in _edges(part)}
    return any(allowed.contains(edge, prereleases=True) and affected.contains(edge, prereleases=True) for edge in edges)


def _edges(part: Specifier) -> Iterator[str]:
    """The version that a specifier names, one right behind it, and the first one that a pattern does not match any more."""
    version = Version(part.version.removesuffix(".*"))
    yield str(version)
    yield f"{version.base_version}.0.0.0.1"
    if part.version.endswith(".*"):
        yield ".".join(map(str, (*version.release[:-1], version.release[-1] + 1)))


def test_no_bound_allows_a_known_weakness() -> None:
    assert not weak(required(), KEPT["advisory"])


def test_every_dependency_was_looked_up() -> None:
    assert {canonicalize_name(one.name) for one in required()} == set(KEPT["looked_up"])
    assert all(type(day) is date for day in KEPT["looked_up"].values())
    assert {one["package"] for one in KEPT["advisory"]} <= set(KEPT["looked_up"])


def test_a_release_is_audited_with_every_extra() -> None:
    workflow = yaml.safe_load((HERE.parent.parent / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
    (audit,) = [step for step in workflow["jobs"]["audit"]["steps"] if "pip-audit" in step.get("run", "")]
    assert audit["env"]["EXTRAS"].split() == [name for name in PROJECT["optional-dependencies"] if name not in DEVELOPING]
    assert workflow["jobs"]["build"]["needs"] == ["audit", "test"]


@each(("bound", "count"), [("orjson>=3.10", 1), ("orjson>=3.11.6", 0), ("orjson[x]>=3.9.1; sys_platform == 'y'", 2)])
def test_a_bound_that_is_too_low_is_found(bound: str, count: int) -> None:
    assert len(weak([Requirement(bound)], KEPT["advisory"])) == count


@each(
    ("bound", "affected", "is_found"),
    [
        (">=3.11.6", ">=3.11.7,<3.12", True),
        (">=3.11.6", ">3.11.6,<=3.11.7", True),
        (">=3.11.6", "==3.11.8", True),
        (">=3.11.6", ">=3.11.7", True),
        (">=3.11.6,!=3.11.7", ">=3.11.7,<3.12", True),
        (">=3.11.6,!=3.11.*", ">=3.11.7,<3.13", True),
        (">=3.11.6,!=3.11.8", "==3.11.8", False),
        (">=3.11.6,!=3.11.*", ">=3.11.7,<3.12", False),
        (">=3.11.6,<3.11.7", ">=3.11.7,<3.12", False),
        (">=3.12", ">=3.11.7,<3.12", False),
    ],
)
def test_a_weakness_above_a_bound_is_found(bound: str, affected: str, is_found: bool) -> None:
    advisory = {"id": "CVE-0", "package": "orjson", "affected": affected, "what": "planted"}
    assert len(weak([Requirement(f"orjson{bound}")], [advisory])) == is_found
