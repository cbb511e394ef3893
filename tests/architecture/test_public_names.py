"""What `import persist` gives: a change here is a change of the public API, and belongs in the changelog."""

import ast
import subprocess
import sys
from pathlib import Path

import persist
from tests.architecture.sources import ROOT, Source

NAMES = Path(__file__).with_name("public_names.txt").read_text(encoding="utf-8").split()


def test_the_public_names() -> None:
    offered: dict[str, object] = {}
    exec("from persist import *", offered)
    assert sorted(offered.keys() - {"__builtins__"}) == NAMES
    assert set(NAMES) < set(dir(persist))
    assert sorted(NAMES) == NAMES


def test_every_public_name_is_there() -> None:
    assert all(getattr(persist, name) is not None for name in NAMES)


def test_a_name_that_is_not_there() -> None:
    assert not hasattr(persist, "upgrade_all")


def test_every_error_is_public_or_a_branch_of_the_tree() -> None:
    tree = Source(ROOT / "persist" / "errors.py").tree
    errors = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    branches = {"TransactionError", "StoreError", "SchemaError"}
    caught_as_store_busy = {"EventLogSwitched"}
    assert errors - branches - caught_as_store_busy <= set(NAMES)
    assert all(issubclass(getattr(persist.errors, name), persist.PersistError) for name in errors)


def test_importing_connects_to_nothing_and_loads_no_driver_and_no_tool() -> None:
    code = """
import sys, persist
print(*sorted({"alembic", "psycopg", "click", "rich", "pytest", "aiosqlite"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
