"""`persist work`: what it runs, what it says, and a sentence for each module that has nothing to run."""

import importlib
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result

from persist import Store
from persist.cli import worker_targets
from tests.cases import each
from tests.cli.conftest import EVIL, SHOWN, Command
from tests.contract.workflows.scenes import queue, stored

Work = Callable[..., Result]

HANDLERS = """
from datetime import timedelta
from persist.workflows import AsyncWorker, Worker

def build(run):
    with Worker.current().phase(run, "plan") as plan:
        plan.output = "done"
    print("built", run.trigger_id)

async def build_async(run):
    async with AsyncWorker.current().phase(run, "plan") as plan:
        plan.output = "done"
    print("built", run.trigger_id)

def fail(run):
    raise ValueError("no good")

SYNC = {"build": build, "fail": fail}
ASYNC = {"build": build_async, "fail": fail}
WITH_OPTIONS = {"handlers": SYNC, "name": "me", "lease": timedelta(minutes=5), "concurrency": 3}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which the command is called. What is imported from there is forgotten at the end, and the path to it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # it goes by size and second, in which a test writes several modules
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def work(command: Command, database_url: str, folder: Path) -> Work:
    """`work(text, target, …)` has the command run what that module of the folder, called app, names."""
    Store.open(database_url).close()

    def run(text: str, target: str, *args: str, **options: Any) -> Result:
        (folder / "app.py").write_text(text, encoding="utf-8")
        sys.modules.pop("app", None)
        importlib.invalidate_caches()
        return command("work", target, *args, **options)

    return run


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as store:
        yield store


@pytest.mark.parametrize("name", ["SYNC", "ASYNC"])
def test_a_dict_of_handlers_does_what_is_queued(work: Work, store: Store, name: str) -> None:
    ids = [queue(store, workflow_name=workflow) for workflow in ("build", "fail", "other")]
    result = work(HANDLERS, f"app:{name}", "--until-idle")
    assert (result.exit_code, result.stderr) == (0, "")
    first, built, last = result.stdout.splitlines()
    assert first.endswith(" handles build, fail, 1 at a time.")
    assert (built, last) == ("built acme/shop#7", "Ended: 1 failed, 1 succeeded.")
    assert [stored(store, id).status.value for id in ids] == ["succeeded", "failed", "queued"]
    assert [one.outcome for one in store.workflows.executions.for_run(ids[0])] == ["succeeded"]


@pytest.mark.parametrize("face", ["sync", "async"])
def test_a_worker_has_its_own_store(work: Work, store: Store, database_url: str, face: str) -> None:
    opened = f"Store.open({database_url!r})" if face == "sync" else f"AsyncStore(Store.open({database_url!r}))"
    config = f"class Config:\n    worker = Worker({opened}, {face.upper()}, name='w')"
    text = f"{HANDLERS}\nfrom persist import AsyncStore, Store\n{config}"
    ids = [queue(store, workflow_name=workflow) for workflow in ("build", "fail")]
    done = work(text, "app:Config.worker", "--until-idle", "--workflow", "build", "--concurrency", "2")
    assert (done.exit_code, done.stdout) == (0, "w handles build, 2 at a time.\nbuilt acme/shop#7\nEnded: 1 succeeded.\n")
    assert [stored(store, id).status.value for id in ids] == ["succeeded", "queued"]
    for option in ("--url", "--schema"):
        refused = work(text, "app:Config.worker", "--until-idle", option, "other")
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "app:Config.worker is a worker, which has a store of its own: leave out --url and --schema." in refused.stderr


@pytest.mark.one_database
def test_what_a_dict_says_of_its_worker_and_what_the_command_line_changes(work: Work, store: Store) -> None:
    asked = work(HANDLERS, "app:WITH_OPTIONS", "--until-idle")
    assert asked.stdout == "me handles build, fail, 3 at a time.\nEnded: nothing was done.\n"
    queue(store, workflow_name="build")
    less = work(HANDLERS, "app:WITH_OPTIONS", "--until-idle", "--json", "--concurrency", "7", "--workflow", "build")
    first, built, last = less.stdout.splitlines()
    assert json.loads(first) == {"worker": "me", "workflows": ["build"], "concurrency": 7, "health": None}
    assert (built, json.loads(last)) == ("built acme/shop#7", {"ended": {"succeeded": 1}})
    assert work(HANDLERS, "app:WITH_OPTIONS", "--until-idle", "-q").output == ""


KINDS = "a Worker, an AsyncWorker or a dict of handlers"
NOTHING = f"Nothing in it is {KINDS}."
OFFERS = "It has ASYNC, SYNC, WITH_OPTIONS."
UNDER_MAIN = 'put what starts it under `if __name__ == "__main__":`'
WRONG: list[tuple[str, str, str]] = [
    ("", "app:worker", f"The module 'app' has no 'worker'. {NOTHING}"),
    (HANDLERS, "app:WORKERS", f"The module 'app' has no 'WORKERS'. {OFFERS}"),
    (HANDLERS, "app:SYNC.get.x", f"Its 'get' has no 'x'. {OFFERS}"),
    (HANDLERS, "app:build", f'app:build is a function, not {KINDS}. As a dict: {{"WORKFLOW": build}}.'),
    (HANDLERS, "app:Worker", f"app:Worker is the class Worker, not {KINDS}. {OFFERS}"),
    ("import os", "app:os", f"app:os is a module, not {KINDS}. {NOTHING}"),
    ("x = 3", "app:x", f"app:x is of the type int, not {KINDS}. {NOTHING}"),
    ("x = {}", "app:x", f"app:x is an empty dict, not {KINDS}."),
    ("x = {'a': 3}", "app:x", "app:x: handlers.a: expected a function, got int."),
    ("x = {'handlers': {}}", "app:x", "app:x: handlers: expected a mapping from names of workflows to functions, at least one."),
    ("x = {'handlers': {'a': print}, 'lease': 3}", "app:x", "app:x: lease: expected a timedelta, got int."),
    (
        "x = {'handlers': {'a': print}, 'sleep': 3}",
        "app:x",
        "app:x has 'handlers', and 'sleep', which is no option of a worker: name, lease, concurrency, retry, poll, grace.",
    ),
    ("def __getattr__(name):\n    raise OSError('gone')", "app:x", "The module 'app' does not give its 'x': OSError: gone"),
    (
        "def f():\n    1 / 0\nf()",
        "app:x",
        "The module 'app' cannot be imported (app.py, line 2): ZeroDivisionError: division by zero.",
    ),
    ("x = (", "app:x", "The module 'app' cannot be imported (app.py, line 1): SyntaxError: '(' was never closed."),
    (
        "import json.nothing",
        "app:x",
        f"The module 'app' cannot be imported (app.py, line 1): it needs 'json.nothing', which {sys.executable} does not have.",
    ),
    (
        "from json import nothing",
        "app:x",
        "The module 'app' cannot be imported (app.py, line 1): ImportError: cannot import name 'nothing' from 'json'",
    ),
    ("raise SystemExit(0)", "app:x", f"The module 'app' ends the program when it is imported (app.py, line 1): {UNDER_MAIN}."),
    (
        "from persist import Store\nStore.open('postgresql://me:geheim@127.0.0.1:1/x')",
        "app:x",
        "The module 'app' cannot be imported (app.py, line 2): ",
    ),
    ("", "ap:x", "There is no module 'ap' in "),
    ("", "app.inner:x", "There is no module 'app.inner': 'app' has none of that name."),
    ("", "json.nothing:x", "There is no module 'json.nothing': 'json' has none of that name."),
]


@each(("text", "target", "sentence"), WRONG)
@pytest.mark.one_database
def test_a_sentence_says_why_there_is_nothing_to_run(work: Work, text: str, target: str, sentence: str) -> None:
    result = work(text, target, "--until-idle")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert result.stderr.startswith(f"Error: {sentence}"), result.stderr
    assert "geheim" not in result.stderr
    told = json.loads(work(text, target, "--until-idle", "--json").stderr)["error"]
    assert told["message"] == result.stderr.removeprefix("Error: ").rstrip("\n")


@pytest.mark.one_database
def test_a_module_that_was_meant(work: Work) -> None:
    assert work("", "apq:x").stderr.endswith("Did you mean app?\n")
    assert "Did you mean" not in work("", "xyzzy:x").stderr


@each("target", ["app", "app:", ":x", "app:1", "app.py:x", "./app:x", "app:x:y", "app:SYNC()", "", f"app:{EVIL}"])
@pytest.mark.one_database
def test_what_is_no_name_of_a_module_is_a_wrong_call(work: Work, target: str) -> None:
    result = work(HANDLERS, target)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "expected MODULE:NAME such as app:worker, got " in result.stderr
    assert ("not by its file" in result.stderr) == (target in ("app.py:x", "./app:x"))
    assert EVIL not in result.output


@each(
    ("args", "exit_code", "sentence"),
    [
        (["--workflow", "nobody"], 1, "Error: app:SYNC: there is no handler of 'nobody', only of 'build', 'fail'.\n"),
        (["--workflow", EVIL], 1, f"Error: app:SYNC: there is no handler of {EVIL!r}, only of 'build', 'fail'.\n"),
        (["--concurrency", "0"], 2, "0 is not in the range x>=1"),
        *(
            (["--health", wrong], 2, "expected HOST:PORT such as 127.0.0.1:8080")
            for wrong in ("8080", "x:", "x:70000", "::1:80", "")
        ),
        (["--health", "192.0.2.1:0"], 1, "Error: --health 192.0.2.1:0: "),
    ],
)
@pytest.mark.one_database
def test_wrong_options(work: Work, args: list[str], exit_code: int, sentence: str) -> None:
    result = work(HANDLERS, "app:SYNC", "--until-idle", *args)
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert sentence in result.stderr


@pytest.mark.one_database
def test_a_dict_needs_a_database(work: Work, folder: Path) -> None:
    unnamed = work(HANDLERS, "app:SYNC", env={"PERSIST_DATABASE_URL": None})
    assert (unnamed.exit_code, unnamed.stdout) == (2, "")
    assert "Which database? Give --url FILE" in unnamed.stderr
    missing = work(HANDLERS, "app:SYNC", "--url", "none.db")
    assert (missing.exit_code, missing.stderr) == (1, "Error: There is no SQLite file 'none.db'.\n")
    assert not (folder / "none.db").exists()


@pytest.mark.one_database
def test_hostile_names_are_printed_escaped(work: Work, store: Store) -> None:
    queue(store, workflow_name=EVIL)
    done = work(f"x = {{'handlers': {{{EVIL!r}: print}}, 'name': {EVIL!r}}}", "app:x", "--until-idle")
    assert (done.exit_code, done.stdout.splitlines()[0]) == (0, f"{SHOWN} handles {SHOWN}, 1 at a time.")
    failed = work(f"raise ValueError({EVIL!r})", "app:x")
    assert (failed.exit_code, EVIL in failed.output) == (1, False)
    assert failed.stderr == f"Error: The module 'app' cannot be imported (app.py, line 1): ValueError: {SHOWN}.\n"


RUNS_AT_ONCE = {
    "sync": """
from persist import Store

def main():
    with Store.open(URL) as store:
        Worker(store, SYNC).run()

main()
""",
    "async": """
import asyncio
from persist import AsyncStore

async def main():
    async with AsyncStore.open(URL) as store:
        await Worker(store, ASYNC).run()

asyncio.run(main())
""",
}


@pytest.mark.one_database
@pytest.mark.parametrize("face", RUNS_AT_ONCE)
def test_a_module_that_runs_its_worker_is_told_where_that_belongs(work: Work, store: Store, database_url: str, face: str) -> None:
    id = queue(store)
    text = RUNS_AT_ONCE[face].replace("URL", repr(database_url))
    result = work(HANDLERS + text, "app:SYNC")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "worker.run: it is called while its module is imported; put what starts it under `if __name__" in result.stderr
    assert stored(store, id).status == "queued"
    *defined, start = text.strip().splitlines()
    under = "\n".join([HANDLERS, *defined, "if __name__ == '__main__':", f"    {start}"])
    assert work(under, "app:SYNC", "--until-idle").exit_code == 0
    assert stored(store, id).status == "succeeded"


@pytest.mark.one_database
def test_an_import_that_takes_long_is_no_silent_one(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    told, said = threading.Event(), []

    def say(text: str, *, err: bool) -> None:
        said.append((text, err))
        told.set()

    monkeypatch.setattr(worker_targets, "say", say)
    monkeypatch.setattr(worker_targets, "_LONG", 0.0)
    monkeypatch.setitem(sys.modules, "told", SimpleNamespace(event=told))
    result = work(f"import told\nassert told.event.wait(60)\n{HANDLERS}", "app:SYNC", "--until-idle")
    assert result.exit_code == 0
    assert said == [
        (
            "The module 'app' is still being imported. If it starts what has no end, "
            'put what starts it under `if __name__ == "__main__":`.',
            True,
        )
    ]
