"""Streams that go wrong: valid ones of the AI SDK with chunks lost, doubled, moved, spoilt and made up."""

import copy
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from persist import Store
from persist.chat.reducer.accumulator import Accumulator, UnknownToolCall
from persist.db.values.json import JsonLimits, decode, encode
from persist.errors import PersistError, shown
from persist.settings import AiSdk
from tests.contract.chat.scenes import VECTORS
from tests.statemachines.bad_arguments import VALUES
from tests.statemachines.both_databases import plain
from tests.unit.json_values import values as json_values

_VALID = [vector["chunks"] for vector in VECTORS if isinstance(vector["chunks"], list)]
_CHUNKS = [chunk for chunks in _VALID for chunk in chunks if isinstance(chunk, dict)]
_FIELDS = sorted({name for chunk in _CHUNKS for name in chunk})
_values = st.one_of(json_values, st.sampled_from(sorted(VALUES)).map(lambda name: VALUES[name]()))


@st.composite
def streams(draw: st.DrawFn) -> list[Any]:
    """A valid stream, or two of them one after the other, with a few things done to it."""
    chunks = copy.deepcopy(draw(st.sampled_from(_VALID)))
    if draw(st.booleans()):
        chunks += copy.deepcopy(draw(st.sampled_from(_VALID)))
    for _ in range(draw(st.integers(1, 6))):
        if not chunks:
            break
        at = draw(st.integers(0, len(chunks) - 1))
        match draw(st.sampled_from(["lose", "double", "move", "insert", "drop field", "spoil", "collide", "grow", "replace"])):
            case "lose":
                del chunks[at]
            case "double":
                chunks.insert(at, copy.copy(chunks[at]))
            case "move":
                chunks.insert(draw(st.integers(0, len(chunks) - 1)), chunks.pop(at))
            case "insert":
                chunks.insert(at, copy.deepcopy(draw(st.sampled_from(_CHUNKS))))
            case "replace":
                chunks[at] = draw(_values)
            case "drop field" if isinstance(chunks[at], dict) and chunks[at]:
                del chunks[at][draw(st.sampled_from(sorted(chunks[at])))]
            case "spoil" if isinstance(chunks[at], dict):
                chunks[at][draw(st.sampled_from(_FIELDS))] = draw(_values)
            case "collide" if isinstance(chunks[at], dict):
                chunks[at][draw(st.sampled_from(["id", "toolCallId", "messageId", "approvalId"]))] = draw(
                    st.sampled_from([*_ids(chunks), "m1", ""])
                )
            case "grow" if isinstance(chunks[at], dict):
                chunks[at][draw(st.sampled_from(["delta", "inputTextDelta", "data"]))] = "x\x00\ud83d" * 40_000
    return chunks


def _ids(chunks: Sequence[Any]) -> list[str]:
    named = [chunk.get(name) for chunk in chunks if isinstance(chunk, dict) for name in ("id", "toolCallId", "messageId")]
    return sorted({id for id in named if isinstance(id, str)})


def feed(store: Any, chunks: Sequence[Any], session: str, **options: Any) -> tuple[list[str | None], Any, list[str]]:
    """Record what can be recorded -> how each chunk ended, what is stored then, and what is wrong."""
    ends: list[str | None] = []
    wrong = []
    pure, elsewhere = Accumulator(ai_sdk=AiSdk(options.get("ai_sdk", AiSdk.V7))), False
    with store.begin() as tx:
        tx.chat.sessions.create(agent="build", model={"model_id": "m"}, id=session)
    try:
        with store.record(session, **options) as recorder:
            for number, chunk in enumerate(chunks):
                try:
                    recorder.feed(chunk)
                    ends.append(None)
                except PersistError as error:
                    ends.append(type(error).__name__)
                except Exception as error:
                    ends.append(type(error).__name__)
                    wrong.append(f"chunk {number} met a bare {type(error).__name__}: {str(error)[:200]}")
                if ends[-1] is None:
                    try:
                        pure.apply(chunk)
                    except UnknownToolCall:
                        elsewhere = True  # a recorder finds the call in an earlier message, which the reducer does not have
                    except PersistError as error:
                        wrong.append(f"chunk {number} was recorded, and reducing it is {error!r}")
    except PersistError as error:
        ends.append(f"leaving: {type(error).__name__}")
    with store.begin() as tx:
        stored = tx.chat.messages.list(session)
        tx.chat.sessions.delete(session)
    last = stored[-1] if stored else None
    started = [
        chunk.get("messageId")
        for chunk, end in zip(chunks, ends, strict=False)
        if end is None and isinstance(chunk, dict) and chunk.get("type") == "start"
    ]
    again = len(started) > len(set(started))  # a recorder goes on with what it has of that message
    if last is not None and last["id"] == pure.message_id and not again and not elsewhere:
        reduced = pure.message()
        if plain(last["parts"]) != plain(_read_back(reduced["parts"])):
            wrong.append(f"stored is {str(last['parts'])[:300]}, and reduced {str(reduced['parts'])[:300]}")
    return ends, stored, wrong


def _shown(chunks: Sequence[Any]) -> str:
    """Short enough to read: what was drawn is drawn again from the seed."""
    return repr(
        [{name: shown(value) for name, value in chunk.items()} if isinstance(chunk, dict) else chunk for chunk in chunks]
    )[:1500]


def _read_back(value: Any) -> Any:
    return decode(encode(value, limits=JsonLimits(max_depth=1000)))


def compare_streams(stores: Sequence[Store], chunks: Sequence[Any], **options: Any) -> list[str]:
    """What is wrong, a sentence each."""
    found = [feed(store, chunks, "fuzzed", **options) for store in stores]
    problems = [f"{sentence} (stream {_shown(chunks)})" for _, _, wrong in found for sentence in wrong]
    for ends, stored, _ in found[1:]:
        if ends != found[0][0]:
            problems.append(f"chunks end as {found[0][0]} and as {ends} (stream {_shown(chunks)})")
        elif plain(stored) != plain(found[0][1]):
            problems.append(f"stored is {found[0][1]!r:.500} and {stored!r:.500} (stream {_shown(chunks)})")
    return problems
