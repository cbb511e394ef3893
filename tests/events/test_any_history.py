"""Whatever was done in whatever order, a new database made from the log has the very rows."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from persist import Store
from persist.errors import PersistError
from persist.settings import Settings
from persist.testing import FrozenClock
from tests.contract.chat.scenes import MODEL
from tests.events.places import assert_rebuilt_byte_for_byte
from tests.examples import examples

Act = Callable[[Store, list[str], list[str]], None]

WORDS = st.text(st.sampled_from(["a", '"', "\\", "\x00", "\ud83d", "\ude00", "\ufdd0", "é", "{", "\n"]), max_size=6)
PLACES = st.integers(0, 5)


def _one(names: list[str], at: int) -> str:
    return names[at % len(names)] if names else "nobody"


def _create(word: str) -> Act:
    def act(store: Store, sessions: list[str], messages: list[str]) -> None:
        sessions.append(store.chat.sessions.create(agent="a", model=MODEL, metadata={"word": word}).id)

    return act


def _verb(name: str, place: int, word: str, at: int) -> Act:
    def act(store: Store, sessions: list[str], messages: list[str]) -> None:
        session, message = _one(sessions, place), _one(messages, at)
        parts = [{"type": "text", "text": word}]
        with store.begin() as tx:
            chat = tx.chat
            verbs: dict[str, Callable[[], Any]] = {
                "append": lambda: messages.append(chat.messages.append(session, role="user", parts=parts).id),
                "enqueue": lambda: messages.append(chat.messages.enqueue(session, parts=parts).id),
                "claim": lambda: chat.messages.claim_queued(session),
                "cancel": lambda: chat.messages.cancel_queued(message),
                "archive": lambda: chat.sessions.archive(session),
                "delete": lambda: chat.sessions.delete(session),
                "fork": lambda: sessions.append(chat.sessions.fork(session, message).id),
                "rewind": lambda: chat.sessions.rewind(session, message),
                "unrewind": lambda: chat.sessions.unrewind(session, message),
                "prompt": lambda: chat.prompts.put(word),
                "patch": lambda: chat.messages.update_metadata(message, {word: None, "b": word}),
                "repair": lambda: chat.messages.repair_interrupted(session),
            }
            verbs[name]()

    return act


def _record(place: int, pieces: list[str], closed: bool, tool: bool) -> Act:
    def act(store: Store, sessions: list[str], messages: list[str]) -> None:
        with store.record(_one(sessions, place)) as recorder:
            if tool:
                kind, field, ids = "tool-input-delta", "inputTextDelta", {"toolCallId": "c"}
                recorder.feed({"type": "start", "messageId": f"tool {place}"})
                recorder.feed({"type": "tool-input-start", "toolCallId": "c", "toolName": "bash"})
            else:
                kind, field, ids = "text-delta", "delta", {"id": "t"}
                recorder.feed_many([{"type": "start"}, {"type": "text-start", "id": "t"}])
            for piece in pieces:
                recorder.feed({"type": kind, **ids, field: piece})
            if closed and not tool:
                recorder.feed_many([{"type": "text-end", "id": "t"}, {"type": "finish"}])
            if recorder.message_id is not None:
                messages.append(recorder.message_id)

    return act


NAMES = ["append", "enqueue", "claim", "cancel", "archive", "delete", "fork", "rewind", "unrewind", "prompt", "patch", "repair"]
ACTS = st.one_of(
    st.builds(_create, WORDS),
    st.builds(_verb, st.sampled_from(NAMES), PLACES, WORDS, PLACES),
    st.builds(_record, PLACES, st.lists(WORDS, max_size=5), st.booleans(), st.booleans()),
    st.just("off"),
    st.just("on"),
)


@pytest.fixture(scope="module")
def logging_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new file whose log is on; copying it takes a tenth of the time that making it does."""
    path = tmp_path_factory.mktemp("logging") / "state.db"
    Store.open(f"sqlite:///{path.as_posix()}", events=True, clock=FrozenClock()).close()
    return path


@settings(max_examples=examples(24), suppress_health_check=[HealthCheck.too_slow])
@given(acts=st.lists(ACTS, max_size=14), fold_bytes=st.sampled_from([1, 8, 4096]))
def test_any_history_of_chat(logging_file: Path, acts: list[Any], fold_bytes: int) -> None:
    folder = Path(tempfile.mkdtemp())
    shutil.copyfile(logging_file, folder / "a.db")
    try:
        source, target = (f"sqlite:///{(folder / name).as_posix()}" for name in ("a.db", "b.db"))
        sessions: list[str] = []
        messages: list[str] = []
        with Store.open(source, events=True, clock=FrozenClock(), settings=Settings(fold_bytes=fold_bytes)) as store:
            _create("first")(store, sessions, messages)
            for act in acts:
                if isinstance(act, str):
                    store.switch_events(act == "on")
                    continue
                try:
                    act(store, sessions, messages)
                except PersistError:
                    continue  # refused: nothing was written, and nothing may be in the log
            store.switch_events(True)
        assert_rebuilt_byte_for_byte(source, target)
    finally:
        shutil.rmtree(folder)
