"""The map is true: what pages for contributors name is there, its walks are walked, and the glossary stays short."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import FrameType

import pytest

from persist import Store
from persist.maintenance import erase
from tests.architecture.sources import ROOT
from tests.cases import each

PAGES = ("docs/architecture.md", "tests/README.md", "CONTRIBUTING.md")
MAX_WORDS = 12

_FOLDERS = "persist|tests|alembic|benchmarks|docs|examples"
_NAMED = re.compile(rf"`((?:{_FOLDERS})/[^`\s:]*|pyproject\.toml|Makefile)(?::([\w.]+))?`")
_PLACEHOLDER = re.compile(r"<\w+>|N(?=_)")
"""As in `persist/<domain>/models.py` and `alembic/versions/000N_<what>.py`."""


def named(page: str) -> list[tuple[str, str]]:
    """Every `path` and `path:Name` of the page, the name empty where there is none."""
    return _NAMED.findall((ROOT / page).read_text(encoding="utf-8"))


def defines(path: Path, name: str) -> bool:
    """Whether the module defines each word of the name, as in `Class.method`."""
    text = path.read_text(encoding="utf-8")
    return all(re.search(rf"^\s*(?:class |def |async def )?{word}\b\s*[=:(\[]", text, re.MULTILINE) for word in name.split("."))


@each("page", PAGES)
def test_every_path_exists(page: str) -> None:
    paths = {path for path, _ in named(page)}
    assert len(paths) > 5
    assert sorted(path for path in paths if not list(ROOT.glob(_PLACEHOLDER.sub("*", path)))) == []


@each("page", PAGES)
def test_every_name_is_defined_where_the_page_says(page: str) -> None:
    assert [(path, name) for path, name in named(page) if name and not defines(ROOT / path, name)] == []


def test_the_glossary_has_at_most_twelve_words() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    (glossary,) = re.findall(r"^## Words of our own\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    words = re.findall(r"^\| (?!word )([a-z -]+) \|", glossary, re.MULTILINE)
    assert 0 < len(words) <= MAX_WORDS
    assert len(set(words)) == len(words)


# The walks: the files that are read to see what happens are those whose functions are called.

SHARED = {"steps", "transactions", "backups", "__init__"}
"""The modules of maintenance that erasing shares with pruning, copying and upgrading."""


@contextmanager
def calls() -> Iterator[set[str]]:
    """The files of persist/ whose functions are called in the block, by this thread."""
    found = set[str]()

    def note(frame: FrameType, event: str, _: object) -> None:
        name = str(frame.f_globals.get("__name__", ""))
        if event == "call" and name.startswith("persist.") and frame.f_code.co_filename != "<string>":  # of a dataclass
            found.add(frame.f_code.co_filename.removeprefix(f"{ROOT}/"))

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


def walk(beginning: str) -> list[str]:
    (told,) = re.findall(rf"^- \*\*{beginning}\*\*(.*?)(?=^- |^$)", (ROOT / "docs/architecture.md").read_text(), re.M | re.S)
    return re.findall(r"`(persist/[\w/]+\.py)`", told)


@pytest.fixture
def store(tmp_path: object) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path}/state.db") as store:
        yield store


def claimed(store: Store, times: int = 2) -> set[str]:
    for _ in range(times):  # the first one prepares the statements
        store.workflows.runs.create("job", trigger_id="t", current_phase="p", status="queued")
        with store.begin() as tx, calls() as found:
            assert tx.workflows.runs.claim("w", lease=timedelta(minutes=1)) is not None
    return found


def test_a_worker_claims_a_run(store: Store) -> None:
    found = claimed(store)
    store.workflows.limits.set("workflow:job", concurrency=9)
    found |= claimed(store)
    told = walk("A worker claims a run")
    assert {name for name in found if not name.startswith("persist/db/")} == set(told)
    assert len(told) <= 4


def test_a_first_claim_under_limits_on_postgres(postgres_url: str) -> None:
    with Store.open(postgres_url, migrate=True) as store:
        store.workflows.limits.set("workflow:job", concurrency=9)
        found = claimed(store, 1)
    told = walk("A worker claims a run") + walk("The first claim, and one under limits on Postgres")
    assert {name for name in found if not name.startswith("persist/db/")} == set(told)


@pytest.mark.parametrize("log", [False, True])
def test_a_chunk_gets_to_the_disk(store: Store, log: bool) -> None:
    store.switch_events(log)
    with store.record(store.chat.sessions.create(agent="a", model={}).id) as recorder:
        for chunk in ({"type": "start"}, {"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": "a"}):
            recorder.feed(chunk)
        with calls() as found:
            recorder.feed({"type": "text-delta", "id": "t", "delta": "b"})
    told = walk("A chunk gets to the disk")
    assert found == {*told, *(walk("A chunk with a log") if log else ())}
    assert len(told) <= 12


def test_a_person_is_erased(store: Store) -> None:
    store.switch_events(True)
    store.chat.sessions.create(agent="a", model={}, owner="maria")
    with calls() as found:
        assert erase(store, owner="maria").tables == {"chat_sessions": 1}
    told = walk("A person is erased")
    shared = {"persist/events/writing.py", *(f"persist/maintenance/{name}.py" for name in SHARED)}
    ours = {name for name in found if name.startswith(("persist/maintenance/", "persist/events/"))} - shared
    log = walk("The log, when a person is erased")
    assert ours | {"persist/db/operations/erasing.py", "persist/chat/upkeep.py"} == {*told, *log}
    assert set(told) - {"persist/chat/upkeep.py"} <= found  # a declaration is read, and not called
    assert len(told) <= 5
