"""What is stored stands in no error of a saver, nor in those that one comes from, nor in the log."""

import logging
from collections.abc import Callable
from typing import Any

import ormsgpack
import pytest

from persist.errors import InvalidValue, StoreCorrupt
from persist.framework_state.checkpoints.schemas import Blob
from persist.integrations.langgraph import PersistSaver
from tests.integrations.langgraph.scenes import MODEL, checkpoint, config, metadata, stored
from tests.integrations.langgraph.test_strict_saver import plant
from tests.integrations.telling import SECRET, require_silence

NO_VALUES = {
    "json": ("json", f'["{SECRET}",'.encode()),
    "json that is not utf-8": ("json", f'["{SECRET}'.encode() + b'\xff"]'),
    "msgpack": ("msgpack", b"\x92" + ormsgpack.packb(SECRET)),
    "an extension": ("msgpack", ormsgpack.packb(ormsgpack.Ext(99, SECRET.encode()))),
    "a short object": ("msgpack", ormsgpack.packb(ormsgpack.Ext(MODEL, ormsgpack.packb([SECRET])))),
    "an object of text": ("msgpack", ormsgpack.packb(ormsgpack.Ext(MODEL, ormsgpack.packb(SECRET)))),
}


@pytest.mark.parametrize("bad", NO_VALUES)
def test_a_value_that_cannot_be_read_is_not_told(
    call: Callable[..., Any], saver: PersistSaver, database_url: str, bad: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    plant(database_url, value=Blob(*NO_VALUES[bad]))
    if bad == "an object of text":  # its letters are a module, a name and a method: a class that nobody has
        call(saver.get_tuple, config(id="1"))
        assert SECRET not in caplog.text
        return
    with pytest.raises(StoreCorrupt, match="nothing that LangGraph's serializer writes") as caught:
        call(saver.get_tuple, config(id="1"))
    require_silence(caught, caplog)


def test_a_message_whose_class_fails_is_not_told(
    call: Callable[..., Any], saver: PersistSaver, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    plant(database_url, value=Blob(*stored(MODEL, "langchain_core.messages.human", "HumanMessage", {"content": {"a": SECRET}})))
    call(saver.get_tuple, config(id="1"))
    assert SECRET not in caplog.text


def test_a_text_that_is_refused_is_not_told(call: Callable[..., Any], saver: PersistSaver) -> None:
    with pytest.raises(InvalidValue, match="would not be stored as it is") as caught:
        call(saver.put, config("t"), checkpoint("1", {"said": f"{SECRET}\ud83d"}, {"said": "1"}), metadata(), {"said": "1"})
    require_silence(caught)
