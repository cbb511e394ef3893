"""What the command line makes of stored text, of models and of credentials; no database."""

import json

import pytest

from persist.cli.output import Paint, columns, inline, model_name, printable, say, say_json, shortened
from persist.cli.root import Failed, redacted
from persist.cli.sessions import message_lines
from tests.cases import each


@each(
    ("text", "shown"),
    [
        ("plain é 😀\n\ttext", "plain é 😀\n\ttext"),
        ("\x1b[31mred\x1b]0;title\x07", "\\x1b[31mred\\x1b]0;title\\x07"),
        ("a\r\nb\rc", "a\nb\\x0dc"),
        ("\x00\x7f\x9b1m", "\\x00\\x7f\\x9b1m"),
        ("user\u202etxt.exe\u2066", "user\\u202etxt.exe\\u2066"),
        ("half \ud83d", "half \\ud83d"),
        ("line\u2028break", "line\\u2028break"),
    ],
)
def test_control_characters_are_shown_and_not_sent(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_inline_keeps_to_one_line() -> None:
    assert inline("a\nb\tc") == "a\\nb\\tc"


def test_long_values_are_cut_and_say_how_long_they_were() -> None:
    assert shortened({"a": "é"}) == '{"a":"é"}'
    assert shortened("x" * 301) == "x" * 300 + "… (301 characters)"
    assert shortened("x" * 300) == "x" * 300


@each(
    ("model", "shown"),
    [
        ({"provider_id": "a", "model_id": "b/c"}, "a/b/c"),
        ({}, "-"),
        (None, "-"),
        ("gpt\x1b", "gpt\\x1b"),
        ({"name": "x"}, '{"name":"x"}'),
    ],
)
def test_model_names(model: object, shown: str) -> None:
    assert model_name(model) == shown


@each(
    "text",
    [
        "postgresql://user:s3cret@host/db",
        "cannot reach postgresql+psycopg://user:s3@cret@host:5432/db?x=1 today",
        "postgresql://host/db?user=me&password=s3cret",
        "host=h password=s3cret dbname=d",
        "postgresql://host/db?sslpassword=s3cret",
    ],
)
def test_passwords_never_get_through(text: str) -> None:
    assert "cret" not in redacted(text)
    assert "***" in redacted(text)
    assert "cret" not in Failed(text).message


def test_failures_are_one_harmless_line() -> None:
    assert Failed("first\n  second\x1b[2J").message == "first second\\x1b[2J"


def test_json_escapes_what_harms_a_terminal_and_stays_the_same_value(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"text": "\x1b\x9b\u202e\ud83d é"}
    say_json(value)
    out = capsys.readouterr().out
    assert json.loads(out) == value
    assert not set(out) & set("\x1b\x9b\u202e")


def test_columns_reckon_with_wide_characters() -> None:
    assert list(columns([("天気", "x"), ("ab", "y"), ("abcde", "z")])) == ["天気   x", "ab     y", "abcde  z"]


def test_paint_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Paint(True)("x", bold=True) != "x"
    assert Paint(False)("x", bold=True) == "x"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert Paint().on
    monkeypatch.setenv("NO_COLOR", "1")
    assert not Paint().on


def test_say_survives_a_terminal_that_cannot_write_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout", open(1, "w", encoding="ascii", closefd=False))  # noqa: SIM115  # closefd: nothing to close
    say("é😀")


def test_every_kind_of_part_is_shown() -> None:
    parts = [
        {"type": "step-start"},
        {"type": "reasoning", "text": "hm\nhm", "state": "done"},
        {"type": "text", "text": "half a sen", "state": "streaming"},
        {"type": "tool-bash", "toolCallId": "c", "state": "output-available", "input": {"x": 1}, "output": "o" * 400},
        {
            "type": "dynamic-tool",
            "toolName": "mcp",
            "toolCallId": "d",
            "state": "output-error",
            "rawInput": "{",
            "errorText": "no",
        },
        {"type": "tool-ask", "toolCallId": "e", "state": "approval-requested", "input": {}, "approval": {"id": "ap"}},
        {"type": "source-url", "sourceId": "s", "url": "https://example.org", "title": "T\x1b"},
        {"type": "source-document", "sourceId": "s", "title": "D", "mediaType": "application/pdf"},
        {"type": "file", "mediaType": "image/png", "url": "data:" + "A" * 500},
        {"type": "data-progress", "data": {"done": 1}},
        {"type": "custom"},
    ]
    message = {"id": "m", "role": "assistant", "parts": parts, "metadata": {"hidden_at": 1}}
    lines = list(message_lines(message, Paint(False)))
    assert lines == [
        "assistant  m (hidden)",
        "  -- step 1",
        "  > hm",
        "  > hm",
        "  half a sen … (not finished)",
        "  tool bash  output-available  c",
        '    input   {"x":1}',
        "    output  " + "o" * 300 + "… (400 characters)",
        "  tool mcp  output-error  d",
        "    input   { (as it came)",
        "    error   no",
        "  tool ask  approval-requested  e",
        "    input   {}",
        '    approval {"id":"ap"}',
        "  source-url  T\\x1b  https://example.org",
        "  source-document  D  application/pdf",
        "  file  image/png  data:" + "A" * 115 + "… (505 characters)",
        '  data-progress  {"done":1}',
        "  custom  {}",
    ]
