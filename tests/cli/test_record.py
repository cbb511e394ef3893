"""`persist record` on both databases: what is stored, what is said, and how it ends."""

import io
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from persist import Conflict, Store
from persist.chat.reducer import reduce
from persist.cli import main
from persist.cli.record import RecordProgress
from tests.cases import each
from tests.markdown import ROOT

pytestmark = pytest.mark.one_database

ANSWER = (ROOT / "examples" / "answer.sse").read_bytes()
CHUNKS = [json.loads(line[6:]) for line in ANSWER.splitlines() if line.startswith(b"data: {")]
Record = Callable[..., Result]


@pytest.fixture
def record(database_url: str) -> Record:
    """`record(stream, …)` into a new session of agent build, unless it says otherwise."""

    def run(stream: bytes, *args: str, session: str = "new") -> Result:
        agent = ("--agent", "build") if session == "new" else ()
        return CliRunner().invoke(main, ["record", "--url", database_url, "--session", session, *agent, *args], input=stream)

    return run


def sse(*chunks: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)


def text(id: str, *pieces: str) -> list[dict[str, Any]]:
    deltas = [{"type": "text-delta", "id": id, "delta": piece} for piece in pieces]
    return [{"type": "text-start", "id": id}, *deltas, {"type": "text-end", "id": id}]


def test_a_stream_becomes_a_message(record: Record, database_url: str) -> None:
    result = record(ANSWER, "--model", "openrouter/anthropic/claude", "--title", "Weather", "--workspace", "/srv")
    assert result.exit_code == 0, result.output
    said = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert said["message"] == "msg_answer"
    assert said["parts"] == "12"
    assert said["chunks"].startswith(f"{len(CHUNKS)} fed, 0 ")
    with Store.open(database_url) as store, store.read() as tx:
        session = tx.chat.sessions.get(said["session"])
        (message,) = tx.chat.messages.list(session.id)
    assert message["parts"] == reduce(CHUNKS)["parts"]
    assert session.model == {"provider_id": "openrouter", "model_id": "anthropic/claude"}
    assert (session.agent, session.workspace_root, session.metadata) == ("build", "/srv", {"title": "Weather"})


def test_json_is_one_object(record: Record) -> None:
    result = record(ANSWER, "--json")
    report = json.loads(result.stdout)
    assert result.stderr == f"session   {report['session_id']}\n"
    assert report.pop("seconds") >= 0
    assert report == {
        "session_id": report["session_id"],
        "message_id": "msg_answer",
        "message_ids": ["msg_answer"],
        "parts": 12,
        "chunks": len(CHUNKS),
        "ignored": 0,
        "skipped": 0,
        "bytes": len(ANSWER),
        "finished": True,
        "interrupted": False,
        "stream_errors": [],
        "error": None,
    }
    assert record(ANSWER, "--json", "--quiet", "--new-ids").stderr == ""


def test_quiet_prints_the_session_alone(record: Record) -> None:
    result = record(ANSWER, "-q")
    assert result.stderr == ""
    assert result.stdout.startswith("ses_")
    assert result.stdout.count("\n") == 1


def test_json_lines_and_crlf_and_comments_are_a_stream_too(record: Record, database_url: str) -> None:
    lines = [
        b"\xef\xbb\xbf: a comment",
        b"event: message",
        b'data: {"type":"start","messageId":"msg_1"}',
        b"",
        b' {"type":"text-start","id":"t"}',
        b'{"type":"text-delta","id":"t","delta":"h\xc3\xa9"}',
        b'data:{"type":"from-the-future"}',
        b"data: [DONE]",
        b'{"type":"finish"}',  # no line end behind it
    ]
    report = json.loads(record(b"\r\n".join(lines), "--json").stdout)
    assert (report["chunks"], report["ignored"], report["finished"]) == (5, 1, True)
    with Store.open(database_url) as store, store.read() as tx:
        assert tx.chat.messages.get("msg_1")["parts"] == [{"type": "text", "text": "hé", "state": "streaming"}]


def test_an_existing_session_goes_on(record: Record, database_url: str) -> None:
    session = record(sse({"type": "start", "messageId": "msg_1"}, *text("t", "one")), "-q").stdout.strip()
    again = record(sse({"type": "start", "messageId": "msg_1"}, *text("t", "two"), {"type": "finish"}), session=session)
    assert again.exit_code == 0
    other = record(sse(*text("t", "three")), "--agent", "helper", "--model", "a/b", session=session)
    assert other.exit_code == 0
    with Store.open(database_url) as store, store.read() as tx:
        first, second = tx.chat.messages.list(session)
        assert tx.chat.sessions.get(session).model == {"provider_id": "a", "model_id": "b"}
    assert [part["text"] for part in first["parts"]] == ["one", "two"]
    assert second["metadata"]["agent"] == "helper"


def test_an_unknown_session_is_refused_before_the_stream_is_read(record: Record, database_url: str) -> None:
    Store.open(database_url).close()
    result = record(ANSWER, session="ses_nobody")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "ses_nobody" in result.stderr


@pytest.mark.parametrize(("options", "key"), [((), "input"), (("--ai-sdk", "6"), "rawInput"), (("--ai-sdk", "7"), "input")])
def test_the_major_of_the_sdk_is_chosen(record: Record, database_url: str, options: tuple[str, ...], key: str) -> None:
    refused = {"type": "tool-input-error", "toolCallId": "c", "toolName": "w", "input": "raw", "errorText": "bad"}
    assert record(sse({"type": "start", "messageId": "msg_1"}, refused), *options).exit_code == 0
    with Store.open(database_url) as store, store.read() as tx:
        assert tx.chat.messages.get("msg_1")["parts"][0][key] == "raw"


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"data: {oops\n", "is not JSON"),
        (b"{oops\n", "is not one JSON object"),
        (b"<html>\n", "is not a line of a server-sent event stream"),
        (b"data: [1]\n", "not a JSON object"),
        (b"data: \xff\n", "UTF-8"),
        (b'data: {"type":"text-delta","id":"t"}\n', "text-delta.delta"),
        (b'data: {"type":"data-x","data":1e999}\n', "is not JSON"),
        (b'data: {"type":"data-x","data":' + b"[" * 300 + b"]" * 300 + b"}\n", "nested deeper"),
        (b'{"type":"data-x","data":' + b"[" * 100_000 + b"\n", "is not one JSON object"),
    ],
)
def test_a_bad_line_stops_and_keeps_what_came_before(record: Record, database_url: str, bad: bytes, why: str) -> None:
    before, after = sse({"type": "start", "messageId": "msg_1"}, *text("t", "kept")[:2]), sse({"type": "finish"})
    result = record(before + bad + after)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: line 7: ")
    assert why in result.stderr
    assert result.stderr.endswith("What came before is kept.\n")
    with Store.open(database_url) as store, store.read() as tx:
        assert tx.chat.messages.get("msg_1")["parts"][0]["text"] == "kept"

    going = record(before + bad + after, "--keep-going", "--new-ids", "--json")
    report = json.loads(going.stdout)
    assert (going.exit_code, report["skipped"], report["finished"]) == (0, 1, True)
    assert "Left out line 7: " in going.stderr


def test_a_chunk_that_cannot_follow_stops_in_any_case(record: Record) -> None:
    stream = sse(*text("t", "kept"), {"type": "text-delta", "id": "nobody", "delta": "x"}, {"type": "finish"})
    result = record(stream, "--keep-going", "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (report["parts"], report["finished"]) == (1, False)
    assert report["error"].startswith("line 7: chunk 3 (text-delta): ")


def test_the_same_stream_again_says_what_to_do(record: Record, database_url: str) -> None:
    assert record(ANSWER).exit_code == 0
    result = record(ANSWER)
    assert result.exit_code == 1
    assert "belongs to another session" in result.stderr
    assert "--new-ids" in result.stderr
    with Store.open(database_url) as store, store.read() as tx:
        assert len(tx.chat.sessions.list().items) == 1
    assert record(ANSWER, "--new-ids").exit_code == 0


def test_a_running_session_needs_takeover(record: Record, database_url: str) -> None:
    with Store.open(database_url) as store:
        with store.begin() as tx:
            session = tx.chat.sessions.create(agent="a", model={}).id
        running = store.record(session)
        running.feed({"type": "text-start", "id": "t"})
        refused = record(sse(*text("t", "x")), session=session)
        assert refused.exit_code == 1
        assert "--takeover" in refused.stderr
        assert record(sse(*text("t", "x"), {"type": "finish"}), "--takeover", session=session).exit_code == 0
        with pytest.raises(Conflict):
            running.feed({"type": "text-delta", "id": "t", "delta": "late"})


def test_errors_of_the_stream_and_missing_ends_are_told(record: Record) -> None:
    result = record(sse(*text("t", "x"), {"type": "error", "errorText": "overloaded\x1b"}))
    assert result.exit_code == 0
    assert "the stream says: overloaded\\x1b" in result.stdout
    assert "without a finish chunk" in result.stdout


def test_an_empty_stream_is_an_empty_session(record: Record) -> None:
    result = record(b"", "--json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["chunks"], report["message_id"], report["parts"]) == (0, 0, None, 0)


@each(
    "args",
    [
        ("--session", "new"),
        ("--agent", "a"),
        ("--session", "new", "--agent", "a", "--model", "claude"),
        ("--session", "new", "--agent", "a", "--model", "/claude"),
        ("--session", "new", "--agent", "a", "--save-on", "never"),
        ("--session", "ses_x", "--title", "t"),
    ],
)
def test_wrong_calls(args: tuple[str, ...], sqlite_url: str) -> None:
    result = CliRunner().invoke(main, ["record", "--url", sqlite_url, *args], input="")
    assert result.exit_code == 2
    assert "Error: " in result.stderr


def test_long_input_shows_progress(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("persist.cli.output._PLAIN_EVERY", 0.0)
    shown = record(ANSWER).stderr.splitlines()
    assert len(shown) == len(CHUNKS)
    assert "554 chunks, 31.6 KB, about " in shown[-1]
    assert record(ANSWER, "-q", "--new-ids").stderr == ""


@pytest.mark.parametrize("rich", [True, False])
def test_progress_on_a_terminal(rich: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("persist.cli.output._PATIENCE", 0.0)
    if not rich:
        monkeypatch.setitem(sys.modules, "rich.progress", None)
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal then
    monkeypatch.setenv("TERM", "xterm")
    with RecordProgress(io.BytesIO(), terminal=True, quiet=False) as progress:
        progress.line(30)
        progress.fed({"type": "text-delta", "id": "t", "delta": "hello"})
    assert "1 chunks, 0.0 KB, about " in capsys.readouterr().err
