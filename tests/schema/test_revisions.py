"""The folder of revisions: one line, numbered, frozen, importing nothing of ours."""

import ast
import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from alembic.script import ScriptDirectory

from persist.schema import metadata
from tests.cases import each
from tests.schema.additive import offences
from tests.schema.places import ROOT, VERSIONS, repository_config, revision_files

CHECKSUMS = Path(__file__).with_name("checksums.txt")
SCRIPTS = ScriptDirectory.from_config(repository_config("sqlite://"))
FILES = revision_files()


def test_there_is_one_head_and_the_code_knows_it() -> None:
    assert SCRIPTS.get_heads() == [metadata.HEAD]
    assert SCRIPTS.get_bases() == ["0001"]


def test_the_code_knows_every_revision_in_order() -> None:
    assert tuple(script.revision for script in SCRIPTS.walk_revisions())[::-1] == metadata.REVISIONS
    assert metadata.REVISIONS[-1] == metadata.HEAD


def test_revisions_are_numbered_in_one_line() -> None:
    numbers = [f"{number:04d}" for number in range(1, len(FILES) + 1)]
    assert [path.name[:4] for path in FILES] == numbers
    assert all(re.fullmatch(r"\d{4}_[a-z0-9_]+\.py", path.name) for path in FILES)
    scripts = [SCRIPTS.get_revision(number) for number in numbers]
    assert [script.down_revision for script in scripts] == [None, *numbers[:-1]]
    assert all(not script.dependencies and Path(script.path).name.startswith(script.revision) for script in scripts)


def test_the_first_revision_carries_the_branch_label() -> None:
    assert SCRIPTS.get_revision("0001").module.branch_labels == ("persist",)


def test_the_folder_is_no_package() -> None:
    """With an __init__.py our folder would be found in the place of the library."""
    assert not (ROOT / "alembic" / "__init__.py").exists()
    assert not (VERSIONS / "__init__.py").exists()


@each("path", FILES, ids=lambda path: str(path.name))
def test_a_revision_imports_only_the_libraries(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(str(node.module).partition(".")[0])
    assert imported <= {"alembic", "sqlalchemy"}


@each("path", FILES, ids=lambda path: str(path.name))
def test_a_revision_says_why(path: Path) -> None:
    first = (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()[0]
    assert len(first) > 20
    assert first.endswith(".")


@each("script", list(SCRIPTS.walk_revisions()), ids=lambda script: str(script.revision))
def test_there_is_no_downgrade(script: Any) -> None:
    with pytest.raises(RuntimeError, match="only grows"):
        script.module.downgrade()


def test_released_revisions_are_never_edited() -> None:
    """CONTRIBUTING.md says how a new one is added, before its release."""
    kept = {name: digest for digest, name in map(str.split, CHECKSUMS.read_text().splitlines())}
    assert kept == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in FILES}


def test_the_template_makes_a_good_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What CONTRIBUTING says to type, in a copy of the folder."""
    shutil.copytree(ROOT / "alembic", tmp_path / "alembic", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "alembic.ini", tmp_path)
    number = f"{len(FILES) + 1:04d}"
    command = [sys.executable, "-m", "alembic", "revision", "--rev-id", number, "-m", "More lanes for sessions."]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (made,) = (tmp_path / "alembic" / "versions").glob(f"{number}_*.py")
    assert made.name == f"{number}_more_lanes_for_sessions.py"
    namespace: dict[str, Any] = {}
    exec(compile(made.read_text(), made, "exec"), namespace)
    assert (namespace["revision"], namespace["down_revision"]) == (number, metadata.HEAD)
    assert offences(namespace["upgrade"]) == []
    with pytest.raises(RuntimeError, match="only grows"):
        namespace["downgrade"]()
