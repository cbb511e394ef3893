"""A domain is declared once: sixty lines give it deleting, pruning, erasing, exporting, events, and both faces."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.faces import on_one_face

ROOT = Path(__file__).parents[2]
DOMAIN = ROOT / "tests" / "toy" / "notes"
MOST = 60


def code_lines(source: str) -> int:
    """How many lines of the source are neither blank nor a docstring."""
    docstrings = [
        node.body[0] for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Module | ast.ClassDef) and node.body
    ]
    left_out = sum(isinstance(one, ast.Expr) for one in docstrings)
    return sum(bool(line.strip()) for line in source.splitlines()) - left_out


def test_a_domain_is_at_most_sixty_lines() -> None:
    lines = {path.name: code_lines(path.read_text(encoding="utf-8")) for path in DOMAIN.glob("*.py")}
    assert {"commands.py", "models.py", "repository.py", "schemas.py", "upkeep.py"} < {*lines}
    assert sum(lines.values()) <= MOST, lines


@on_one_face  # the walk goes through both
def test_it_has_everything_that_a_domain_has(backend: str, face: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'notes.db'}" if backend == "sqlite" else request.getfixturevalue("empty_postgres_url")
    command = [sys.executable, "-W", "error", str(ROOT / "tests" / "toy" / "walk.py"), url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "list": [["n1", "n2"], ["n3"]],
        "noun": [["n1", "n2", "n3"], ["n3"]],
        "get": "bob",
        "delete": [True, False],
        "events": ["note.added", "note.deleted"],
        "gone": "There is no note 'n1'.",
        "export": ["note", 1],
        "erase": {"notes": 1, "note_lines": 1},
        "blanked": [True, True],
        "doctor": [],
        "async": ["ada", True, 1],
        "prunable": ["notes"],
        "prune": [{}, {"note_lines": 1, "notes": 1}],
    }
