"""`persist ls DOMAIN` and `persist show ID`: one word for what every domain has."""

import json
from collections.abc import Callable

import pytest
from click.testing import Result

from persist import Store
from persist.testing import FrozenClock
from tests.cases import each
from tests.cli.golden import assert_golden
from tests.maintenance.pruning_scenes import DOMAINS as PRUNABLE
from tests.statement_log import seen_statements

pytestmark = pytest.mark.one_database

Command = Callable[..., Result]
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


def test_pages_of_a_domain(command: Command, filled: str) -> None:
    first = json.loads(command("ls", "workflows", "--limit", "2", "--json").stdout)
    second = json.loads(command("ls", "workflows", "--limit", "2", "--json", "--after", first["cursor"]).stdout)
    ids = [item["id"] for item in first["items"] + second["items"]]
    assert len(ids) == len(set(ids)) == 4


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


def test_an_id_that_nothing_has(command: Command, filled: str) -> None:
    result = command("show", "nobody")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "Error: There is no session or run 'nobody'.\n")


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
