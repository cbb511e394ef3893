"""A large file of a part is a blob, and is read back as the same part; a small one stays in its row."""

import json
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Literal

import pytest

from persist import Settings
from persist.blobs.content import PIECE
from persist.errors import BlobUnreadable, Conflict, InvalidValue, NotFound
from tests.cases import each
from tests.contract.chat.scenes import create
from tests.contract.conftest import Raw

CAP = 65_536
HEADS = ["data:image/png;base64", "data:;base64", "data:text/plain;charset=utf-8;base64", "data:application/x;a=b;base64"]


def body(size: int) -> bytes:
    return (b"".join(number.to_bytes(3, "big") for number in range(size // 3 + 1)))[:size]


def url(size: int, head: str = HEADS[0]) -> str:
    return f"{head},{b64encode(body(size)).decode()}"


def file(size: int = CAP + 1, head: str = HEADS[0], **more: Any) -> dict[str, Any]:
    return {"type": "file", "mediaType": "image/png", "url": url(size, head), "filename": "a.png", **more}


def append(store: Any, session: str, *parts: Any, **more: Any) -> str:
    return str(store.chat.messages.append(session, role="user", parts=list(parts), **more).id)


def everything(store: Any, session: str) -> list[Any]:
    """What each way of reading a session says of its only message's parts."""
    messages = store.chat.messages
    (listed,) = messages.list(session)
    (some,) = messages.list(session, limit=1)
    (joined,) = json.loads(messages.list_json(session))
    (viewed,) = messages.model_view(session)
    return [one["parts"] for one in (listed, some, joined, viewed, messages.get(listed["id"]))]


def test_a_large_file_is_a_blob_and_reads_as_it_was_given(store: Any, raw: Raw) -> None:
    session = create(store)
    given = [{"type": "text", "text": "Look:"}, file(), file(CAP), {**file(PIECE * 2), "type": "reasoning-file"}]
    append(store, session, *given)
    for read in everything(store, session):
        assert read == given
        assert [list(part) for part in read] == [list(part) for part in given]
    stored = [json.loads(json.dumps(raw.json('SELECT data_json FROM chat_parts WHERE "index" = ?', place))) for place in range(4)]
    digests = [sha256(body(size)).hexdigest() for size in (CAP + 1, PIECE * 2)]
    assert stored[1] == {**given[1], "url": f"persist-blob:{digests[0]}:{HEADS[0]}", "state": "persist-blob"}
    assert stored[2] == given[2]
    assert (raw.count("blobs"), raw.count("chat_part_blobs")) == (2, 2)
    assert store.blobs.read(digests[1]) == body(PIECE * 2)
    assert store.blobs.get(digests[0]).media_type == "image/png"


@each("head", HEADS)
def test_the_head_of_the_url_is_kept(store: Any, raw: Raw, head: str) -> None:
    session = create(store)
    append(store, session, file(head=head))
    assert all(read == [file(head=head)] for read in everything(store, session))
    assert raw.count("blobs") == 1


@each(
    "part",
    [
        file(head="data:image/png"),
        {**file(), "url": url(CAP + 1) + "="},
        {**file(), "url": url(CAP + 1)[:-4] + "\nAAA"},
        {**file(), "url": url(CAP + 2)[:-2] + "B="},  # bits that no encoder writes
        {**file(), "url": "https://example.com/" + "a" * 2 * CAP},
        {**file(), "url": "DATA:image/png;base64," + b64encode(body(CAP + 1)).decode()},
        {**file(), "url": "data:" + "a" * 300 + ";base64," + b64encode(body(CAP + 1)).decode()},
        file(state="of its own"),
        {"type": "data-image", "data": {"url": url(CAP + 1)}},
        {"type": "text", "text": url(CAP + 1)},
    ],
)
def test_what_could_not_be_made_again_stays_where_it_is(store: Any, raw: Raw, part: dict[str, Any]) -> None:
    session = create(store)
    append(store, session, part)
    assert all(read == [part] for read in everything(store, session))
    assert raw.count("blobs") == 0


def test_by_reference_no_bytes_are_read(store: Any, raw: Raw) -> None:
    session = create(store)
    given = [file(), {"type": "text", "text": "x"}, file(CAP)]
    id = append(store, session, *given)
    raw.rows("DELETE FROM blob_pieces")
    name = f"persist-blob:{sha256(body(CAP + 1)).hexdigest()}"
    expected = [{**given[0], "url": name}, *given[1:]]
    messages = store.chat.messages
    assert messages.list(session, files="reference")[0]["parts"] == expected
    assert json.loads(messages.list_json(session, files="reference"))[0]["parts"] == expected
    assert messages.get(id, files="reference")["parts"] == expected
    assert messages.model_view(session, files="reference")[0]["parts"] == expected
    for read in (messages.list, messages.list_json, messages.model_view):
        with pytest.raises(BlobUnreadable, match=name.partition(":")[2]):
            read(session)
        with pytest.raises(InvalidValue, match="files"):
            read(session, files="everything")


def record(store: Any, session: str, *chunks: dict[str, Any], **more: Any) -> None:
    with store.record(session, **more) as recorder:
        for chunk in chunks:
            recorder.feed(chunk)


@pytest.mark.parametrize("save_on", ["chunk", "step", "turn"])
def test_a_recorded_file(store: Any, raw: Raw, save_on: str) -> None:
    session = create(store)
    chunks = [
        {"type": kind, "mediaType": "image/png", "url": url(size)}
        for kind, size in [("file", CAP + 1), ("reasoning-file", PIECE)]
    ]
    record(store, session, {"type": "start", "messageId": "m"}, *chunks, save_on=save_on)
    assert all(read == chunks for read in everything(store, session))
    assert raw.count("blobs") == raw.count("chat_part_blobs") == 2
    replayed = store.chat.messages.replay("m")
    assert replayed[1:3] == chunks
    named = store.chat.messages.replay("m", files="reference")[1]["url"]
    assert named == f"persist-blob:{sha256(body(CAP + 1)).hexdigest()}"
    # the message is continued, and what was there stays
    text = [{"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": "x"}, {"type": "text-end", "id": "t"}]
    record(store, session, {"type": "start", "messageId": "m"}, *text, chunks[0], {"type": "finish"}, save_on=save_on)
    assert all(
        read == [*chunks, {"type": "text", "text": "x", "state": "done"}, chunks[0]] for read in everything(store, session)
    )
    assert (raw.count("blobs"), raw.count("chat_part_blobs")) == (2, 3)


def test_a_discarded_attempt_names_its_file_no_more(store: Any, raw: Raw) -> None:
    session = create(store)
    chunk = {"type": "file", "mediaType": "image/png", "url": url(CAP + 1)}
    record(store, session, {"type": "start"}, {"type": "start-step"}, chunk, {"type": "reset-step"}, {"type": "finish"})
    assert (raw.count("blobs"), raw.count("chat_part_blobs")) == (1, 0)
    assert store.blobs.delete(sha256(body(CAP + 1)).hexdigest())


def test_a_follower_gets_the_file(store: Any) -> None:
    session = create(store)
    chunk = {"type": "file", "mediaType": "image/png", "url": url(CAP + 1)}
    with store.record(session) as recorder:
        recorder.feed_many([{"type": "start", "messageId": "m"}, chunk])
        chunks = iter(store.follow(session))
        assert [next(chunks) for _ in range(2)][1] == chunk
        recorder.feed({"type": "finish"})


def test_equal_files_are_stored_once_and_stay_as_long_as_one_is_named(store: Any, raw: Raw) -> None:
    first, second = create(store), create(store)
    append(store, first, file(), file(filename="b.png"))
    append(store, second, file())
    digest = sha256(body(CAP + 1)).hexdigest()
    assert (raw.count("blobs"), raw.count("chat_part_blobs")) == (1, 3)
    for session in (first, second):
        with pytest.raises(Conflict, match="named"):
            store.blobs.delete(digest)
        store.chat.sessions.delete(session)
    assert store.blobs.delete(digest)


def test_a_fork_names_the_same_file(store: Any, raw: Raw) -> None:
    session = create(store)
    asked = append(store, session, file(), {"type": "text", "text": "x"})
    child = store.chat.sessions.fork(session, asked).id
    store.chat.sessions.delete(session)
    assert all(read == [file(), {"type": "text", "text": "x"}] for read in everything(store, child))
    assert (raw.count("blobs"), raw.count("chat_part_blobs")) == (1, 1)


def test_a_queued_file(store: Any) -> None:
    session = create(store)
    enqueue = store.chat.messages.enqueue
    waiting = enqueue(session, parts=[file()], id="m")
    assert enqueue(session, parts=[file()], id="m").id == waiting.id
    for other in (file(CAP + 2), file(head=HEADS[1]), file(CAP)):
        with pytest.raises(Conflict):
            enqueue(session, parts=[other], id="m")
    store.chat.messages.claim_queued(session)
    assert all(read == [file()] for read in everything(store, session))


def test_a_forged_reference_names_nothing(store: Any, raw: Raw) -> None:
    """A browser that knows a digest, or the form of a stored part, gets no bytes that were not its own."""
    mine, theirs = create(store), create(store)
    append(store, theirs, file())
    digest = sha256(body(CAP + 1)).hexdigest()
    (stored,) = raw.rows("SELECT data_json FROM chat_parts")[0]
    forged = json.loads(stored) if isinstance(stored, str) else stored
    for bad in (forged, {**file(), "url": f"persist-blob:{digest}"}, {**file(), "url": "Persist-Blob:x"}):
        bad = {"type": "file", "mediaType": "image/png", "url": bad["url"], "state": "persist-blob"}
        for part in (bad, {key: value for key, value in bad.items() if key != "state"}):
            with pytest.raises(InvalidValue, match="persist-blob:"):
                append(store, mine, part)
            with pytest.raises(InvalidValue, match="persist-blob:"):
                store.chat.messages.enqueue(mine, parts=[part])
        chunk = {"type": "file", "mediaType": "image/png", "url": bad["url"]}
        with store.record(mine) as recorder:
            with pytest.raises(InvalidValue, match="persist-blob:"):
                recorder.feed_many([{"type": "start"}, {"type": "start-step"}, chunk])
            recorder.feed({"type": "finish"})
    with pytest.raises(NotFound):
        store.chat.messages.file(mine, digest)
    assert store.chat.messages.file(theirs, digest).size == CAP + 1
    # what another program wrote is text, where no row says that it is a file
    looks_alike = {"type": "data-x", "data": 1, "state": "persist-blob", "url": f"persist-blob:{digest}:{HEADS[0]}"}
    id = append(store, mine, looks_alike, {"type": "text", "text": 'persist-blob"'})
    assert store.chat.messages.get(id)["parts"][0] == looks_alike
    raw.rows("UPDATE chat_parts SET type = 'file' WHERE message_id = ? AND \"index\" = 0", id)
    assert json.loads(store.chat.messages.list_json(mine))[-1]["parts"][0] == looks_alike


def test_a_part_of_another_program_that_looks_like_ours_is_its_own_text(store: Any, raw: Raw) -> None:
    session, other = create(store), create(store)
    append(store, other, file())
    id = append(store, session, file(CAP))
    (stored,) = raw.rows("SELECT data_json FROM chat_parts WHERE message_id <> ?", id)[0]
    text = stored if isinstance(stored, str) else json.dumps(stored)
    raw.rows("UPDATE chat_parts SET data_json = ? WHERE message_id = ?", text, id)
    part = store.chat.messages.get(id)["parts"][0]
    assert (part["state"], part["url"].partition(":")[0]) == ("persist-blob", "persist-blob")
    assert json.loads(store.chat.messages.list_json(session))[0]["parts"] == [part]
    child = store.chat.sessions.fork(session, id).id
    assert store.chat.messages.list(child)[0]["parts"] == [part]
    assert raw.count("chat_part_blobs") == 1


def test_nothing_is_written_for_a_session_that_is_not_there(store: Any, raw: Raw) -> None:
    create(store)
    with store.begin() as tx:
        with pytest.raises(NotFound, match="session"):
            tx.chat.messages.append("unknown", role="user", parts=[file()])
        tx.chat.prompts.put("still usable")
    with pytest.raises(NotFound, match="session"):
        append(store, "unknown", file())
    assert raw.count("blobs") == 0


@pytest.mark.parametrize("files", ["data", "reference"])
def test_a_browser_posts_files_as_it_was_shown_them(store: Any, raw: Raw, files: Literal["data", "reference"]) -> None:
    session, other = create(store), create(store)
    append(store, other, file(CAP + 9))
    sync, text = store.chat.messages.sync, {"type": "text", "text": "And?"}
    assert sync(session, [{"id": "q", "role": "user", "parts": [file(), file(CAP)]}], trigger="submit-message").added == ["q"]
    chunk = {"type": "file", "mediaType": "image/png", "url": url(CAP + 2)}
    record(store, session, {"type": "start", "messageId": "a"}, chunk, {"type": "finish"})

    def loaded() -> list[Any]:
        return list(store.chat.messages.list(session, files=files))

    assert (raw.count("blobs"), raw.count("chat_part_blobs")) == (3, 3)
    assert not sync(session, loaded(), trigger="submit-message").changed
    again = [*loaded(), {"id": "q2", "role": "user", "parts": [loaded()[0]["parts"][0], file(CAP + 3)]}]
    assert sync(session, again, trigger="submit-message").added == ["q2"]
    assert store.chat.messages.get("q2")["parts"] == [file(), file(CAP + 3)]
    edited = loaded()
    edited[-1]["parts"].append(text)
    assert sync(session, edited).edited == ["q2"]
    assert store.chat.messages.get("q2")["parts"] == [file(), file(CAP + 3), text]
    assert (raw.count("blobs"), raw.count("chat_part_blobs")) == (4, 5)
    changed = loaded()
    changed[1]["parts"][0]["url"] = url(CAP + 4)
    with pytest.raises(InvalidValue, match="stored answer"):
        sync(session, changed)
    theirs = store.chat.messages.list(other, files="reference")[0]["parts"][0]
    with pytest.raises(InvalidValue, match="persist-blob:"):
        sync(session, [*loaded(), {"id": "q3", "role": "user", "parts": [theirs]}], trigger="submit-message")


@pytest.mark.parametrize("spoilt", [False, True])
def test_a_browser_adds_a_file_to_those_it_was_shown_by_reference(store: Any, raw: Raw, spoilt: bool) -> None:
    session, sync, text = create(store), store.chat.messages.sync, {"type": "text", "text": "Look."}
    append(store, session, text, file(), id="q")
    (question,) = store.chat.messages.list(session, files="reference")
    question["parts"].append(file(CAP + 2))
    assert sync(session, [question], trigger="submit-message", message_id="q").edited == ["q"]
    store.chat.messages.append(session, role="assistant", parts=[text], id="a")
    if spoilt:
        raw.rows("""UPDATE chat_parts SET data_json = '[]' WHERE message_id = 'q' AND "index" = 0""")
        del question["parts"][0]
    assert sync(session, [question], trigger="submit-message", message_id="q").answered_by == "a"
    asked = [question, {"id": "a", "role": "assistant", "parts": [text]}, {"id": "q2", "role": "user", "parts": [text]}]
    assert sync(session, asked, trigger="submit-message").added == ["q2"]


def test_a_reference_to_a_file_of_the_same_session_stands_for_the_file(store: Any, raw: Raw) -> None:
    session = create(store)
    id = append(store, session, file())
    reference = store.chat.messages.get(id, files="reference")["parts"][0]
    again = append(store, session, {**reference, "filename": "b.png"})
    assert store.chat.messages.get(again)["parts"] == [file(filename="b.png")]
    store.chat.messages.enqueue(session, parts=[reference], id="m")
    assert store.chat.messages.enqueue(session, parts=[file()], id="m").id == "m"
    assert (raw.count("blobs"), raw.count("chat_part_blobs")) == (1, 3)


def test_the_cap_is_a_setting(open_store: Callable[..., Any], raw: Raw) -> None:
    with open_store(settings=Settings(inline_file_bytes=9)) as store:
        session = create(store)
        append(store, session, file(9), file(10))
        assert store.chat.messages.list(session)[0]["parts"] == [file(9), file(10)]
    assert raw.count("blobs") == 1
