"""`persist ls DOMAIN` and `persist show ID`: one word for what every domain has; how output is laid out; `persist erd`."""

import json

import pytest
from click.testing import CliRunner, Result

from persist import Store
from persist.cli import main
from persist.cli.output import Paint, columns, inline, model_name, printable, say, say_json, shortened
from persist.cli.root import Failed, redacted
from persist.cli.sessions import message_lines
from persist.maintenance import erd
from persist.testing import FrozenClock
from tests.cases import each
from tests.cli.conftest import Command
from tests.cli.golden import assert_golden
from tests.maintenance.pruning_scenes import DOMAINS as PRUNABLE
from tests.statement_log import seen_statements

pytestmark = pytest.mark.one_database

DOMAINS = [domain for domain in PRUNABLE if domain != "usage"]
"""Those that have things with ids: `persist usage` sums up what usage has."""
GROUPS = {domain: "runs" if domain == "workflows" else domain for domain in DOMAINS if domain != "chat"}
SHOWN = [domain for domain in DOMAINS if domain not in ("telemetry", "events")]
IDS = {r"(ses|run|mse|exe|apr|aps|atk)_\w+": r"\1_ID", r" +\n": "\n"}
AMBIGUOUS = "the same id"


@pytest.fixture
def ambiguous(database_url: str, clock: FrozenClock) -> str:
    """A chat and a program's run have the same id."""
    with Store.open(database_url, clock=clock) as store, store.begin() as tx:
        tx.chat.sessions.create(agent="build", model={"model_id": "m"}, id=AMBIGUOUS)
        tx.programs.runs.create(id=AMBIGUOUS)
    return database_url


def test_every_domain_can_be_listed(command: Command, filled: str) -> None:
    said = []
    for domain in DOMAINS:
        result = command("ls", domain)
        assert result.exit_code == 0
        said.append(f"$ persist ls {domain}\n{result.stdout}")
    assert_golden("ls", "\n".join(said), IDS)


@each("options", [(), ("-q",), ("--json",), ("--limit", "1")], ids=["plain", "quiet", "json", "limit"])
def test_it_lists_what_the_domains_own_command_lists(command: Command, filled: str, options: tuple[str, ...]) -> None:
    for domain, group in GROUPS.items():
        assert command("ls", domain, *options).stdout == command(group, "ls", *options).stdout != "", domain


def test_without_a_domain_chats_are_listed(command: Command, filled: str) -> None:
    assert command("ls").stdout == command("ls", "chat").stdout
    assert json.loads(command("ls", "--json").stdout) == json.loads(command("ls", "chat", "--json").stdout)


@pytest.mark.parametrize(
    "wrong",
    [
        ("nothing",),
        ("workflows", "--agent", "a"),
        ("messaging", "--workspace", "/"),
        ("conversations", "--archived"),
        ("programs", "--after", "x"),
        ("telemetry", "--after", "x"),
        ("chat", "--limit", "0"),
    ],
    ids="_".join,
)
def test_ls_called_wrongly(command: Command, filled: str, wrong: tuple[str, ...]) -> None:
    result = command("ls", *wrong)
    assert (result.exit_code, result.stdout) == (2, "")


def test_an_empty_store_has_nothing_to_list(command: Command, database_url: str) -> None:
    Store.open(database_url).close()
    for domain in DOMAINS:
        result = command("ls", domain)
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (0, "", 1)


@each("options", [(), ("-q",), ("--json",)], ids=["plain", "quiet", "json"])
def test_an_id_is_enough_to_show_it(command: Command, filled: str, options: tuple[str, ...]) -> None:
    for domain in SHOWN:
        id = command("ls", domain, "-q").stdout.splitlines()[0]
        result = command("show", id, *options)
        assert result.exit_code == 0, domain
        assert result.stdout == command("show", id, "--domain", domain, *options).stdout != "", domain
        if domain != "chat":
            assert result.stdout == command(GROUPS[domain], "show", id, *options).stdout, domain


def test_an_id_of_several_wants_the_domain(command: Command, ambiguous: str) -> None:
    result = command("show", AMBIGUOUS)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is the id of a chat session and a program's run; say which with --domain chat|programs." in result.stderr
    assert command("show", AMBIGUOUS, "--domain", "chat").stdout.startswith("session")
    assert command("show", AMBIGUOUS, "--domain", "programs").stdout.startswith("run")


def test_an_id_that_the_domain_has_not(command: Command, filled: str) -> None:
    for domain in SHOWN:
        result = command("show", "nobody", "--domain", domain)
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1), domain
        assert "'nobody'" in result.stderr, domain


def test_hidden_messages_are_those_of_chats(command: Command, filled: str) -> None:
    result = command("show", "conv-1", "--hidden")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "this is a conversation" in result.stderr


def test_instances_are_listed_with_their_status(command: Command, filled: str) -> None:
    assert command("telemetry", "ls", "-q").stdout == "box-1\n"
    (entry,) = json.loads(command("telemetry", "ls", "--json").stdout)["items"]
    assert (entry["instance_id"], entry["new_status"], entry["is_oldest"]) == ("box-1", "busy", False)


def test_chats_are_shown_with_their_owners_and_whether_they_run(command: Command, database_url: str) -> None:
    with Store.open(database_url) as store:
        create = store.chat.sessions.create
        mine, others = create(agent="build", model={}, owner="maria\x1b"), create(agent="build", model={}, owner="ann")
        with store.record(mine.id) as recorder:
            recorder.feed({"type": "start"})
            head, *rows = command("ls").stdout.splitlines()
            assert head.split()[:3] == ["SESSION", "AGENT", "OWNER"]
            by_id = {row.split()[0]: row for row in rows}
            assert (by_id[mine.id].split()[2], "(running)" in by_id[mine.id]) == ("maria\\x1b", True)
            assert (by_id[others.id].split()[2], "(running)" in by_id[others.id]) == ("ann", False)
            shown = [line.split() for line in command("show", mine.id).stdout.splitlines()]
            assert ["owner", "maria\\x1b"] in shown
            assert ["state", "running"] in shown
            assert json.loads(command("show", mine.id, "--json").stdout)["session"]["running"]
            found = {one["id"]: (one["owner"], one["running"]) for one in json.loads(command("ls", "--json").stdout)["items"]}
            assert found == {mine.id: ("maria\x1b", True), others.id: ("ann", False)}
            recorder.feed({"type": "finish"})
    assert command("ls", "--owner", "ann", "-q").stdout.split() == [others.id]
    assert command("ls", "--owner", "nobody").stderr == "No sessions.\n"
    assert "(running)" not in command("ls").stdout
    assert command("ls", "workflows", "--owner", "ann").exit_code == 2


def test_one_statement_asks_which_chats_of_a_page_run(
    command: Command, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(database_url) as store, store.begin() as tx:
        for _ in range(9):
            tx.chat.sessions.create(agent="build", model={})
    seen = seen_statements(monkeypatch)
    assert len(command("ls").stdout.splitlines()) == 10
    assert len([one for one in seen if "chat_turns" in one and one.startswith("SELECT")]) == 1


# What the command line makes of stored text, of models and of credentials; no database.


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


def _run(*args: str) -> Result:
    return CliRunner().invoke(main, list(args), env={"PERSIST_DATABASE_URL": None})


def test_the_diagram_of_all_tables() -> None:
    result = _run("erd")
    assert (result.exit_code, result.stdout, result.stderr) == (0, erd(), "")


def test_the_diagram_of_one_domain() -> None:
    assert_golden("erd-messaging", _run("erd", "--domain", "messaging").stdout)


def test_a_domain_there_is_none_of() -> None:
    result = _run("erd", "--domain", "mesaging")
    assert (result.exit_code, result.stdout) == (1, "")
    assert_golden("erd-unknown", result.stderr)
