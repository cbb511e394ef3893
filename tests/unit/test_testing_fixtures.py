"""The fixtures of `persist.testing`, in a run of pytest of their own, as somebody who uses persist has it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.markdown import ROOT

pytestmark = pytest.mark.long

TESTS = """
import asyncio
from persist import AsyncStore, Store

def test_sync(persist_store, persist_clock):
    assert isinstance(persist_store, Store)
    first = persist_store.chat.sessions.create(agent="build", model={})
    assert first.created_at == persist_clock()

def test_async(persist_async_store, persist_clock):
    assert isinstance(persist_async_store, AsyncStore)
    async def use():
        async with persist_async_store.begin() as tx:
            return await tx.chat.sessions.create(agent="build", model={})
    assert asyncio.run(use()).created_at == persist_clock()
"""
ON_A_SERVER = """
import asyncio

def test_server(persist_postgres_store, persist_async_postgres_store):
    id = persist_postgres_store.chat.sessions.create(agent="build", model={}).id
    async def use():
        return await persist_async_postgres_store.chat.sessions.get(id)
    assert asyncio.run(use()).id == id

def test_each_test_has_its_own(persist_postgres_store):
    assert persist_postgres_store.chat.sessions.list().items == []
"""


def run(folder: Path, tests: str, server: str | None) -> tuple[int, str]:
    (folder / "conftest.py").write_text('pytest_plugins = ["persist.testing"]\n')
    (folder / "test_mine.py").write_text(tests)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PERSIST_")}
    environment = {**kept, "PYTHONPATH": str(ROOT), **({} if server is None else {"PERSIST_TEST_POSTGRES_URL": server})}
    line = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(folder)]
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def test_on_files(tmp_path: Path) -> None:
    code, said = run(tmp_path, TESTS, None)
    assert (code, "2 passed" in said) == (0, True), said


def test_without_a_server_the_test_fails_with_what_to_do(tmp_path: Path) -> None:
    code, said = run(tmp_path, ON_A_SERVER, None)
    assert (code, "Set PERSIST_TEST_POSTGRES_URL" in said) == (1, True), said


def test_on_a_server(tmp_path: Path, empty_postgres_url: str) -> None:
    code, said = run(tmp_path, ON_A_SERVER, empty_postgres_url)
    assert (code, "2 passed" in said) == (0, True), said
