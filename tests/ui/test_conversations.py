"""The pages of conversations: the list, branches with the points of their forks, inherited messages, letters."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from persist import Store
from persist.cli import main
from tests.contract.conftest import Raw
from tests.ui.visitor import Visitor

EVIL = "<script>alert(1)</script>\"'\u202e"


def say(tx: Any, branch: str, id: str, words: Any, **about: Any) -> None:
    tx.conversations.messages.record(branch, {"id": id, "created_at": 1_700_000_000.0, "role": "user", "content": words, **about})


def debate(state: Store) -> str:
    """A conversation whose branch `main` has four messages, `doubt` two of them and one of its own, and `again` all of these."""
    with state.begin() as tx:
        id = tx.conversations.sessions.create(id="debate", name="Prices", status="running", agent_name="planner").id
        branches = tx.conversations.branches
        branches.create(id, id="main", name="main")
        for number in range(4):
            say(tx, "main", f"m{number}", {"instruction": f"main says {number}"})
        branches.fork("main", at=2, name="doubt", new_id="doubt")
        say(tx, "doubt", "d0", "doubt says **this**")
        branches.fork("doubt", name="again", new_id="again")
        say(tx, "again", "a0", {"two": 1, "fields": 2})
    return id


def test_the_list_is_filtered_and_json_is_that_of_ls(
    state: Store, visitor: Visitor, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    debate(state)
    with state.begin() as tx:
        tx.conversations.sessions.create(
            id="other", name="Names", status="failed", source_kind="imported_fs", playbook_name="find"
        )
    assert "Prices running planner" in visitor.get("/conversations").main
    for query in ("status=failed", "playbook_name=find", "source_kind=imported_fs"):
        found = visitor.get(f"/conversations?{query}").main
        assert "Names" in found
        assert "Prices" not in found
    assert visitor.get("/conversations?status=odd").status == 400
    monkeypatch.setenv("PERSIST_DATABASE_URL", database_url)
    printed = json.loads(CliRunner().invoke(main, ["conversations", "ls", "--json", "--status", "running"]).output)
    assert visitor.json("/conversations", status="running") == printed
    assert [one["message_count"] for one in printed["items"]] == [6]


def test_an_empty_list_says_what_would_fill_it(visitor: Visitor) -> None:
    assert "No conversations. They come with tx.conversations.sessions.create" in visitor.get("/conversations").main


def test_branches_are_drawn_with_the_points_of_their_forks(state: Store, visitor: Visitor) -> None:
    id = debate(state)
    page = visitor.get(f"/conversations/{id}")
    drawn = page.text.partition('class="plot lanes"')[2].partition("</svg>")[0]
    assert drawn.count("<circle") == 2
    assert "doubt: no status, forked from main after 2 messages" in drawn
    assert f'href="/conversations/{id}?branch=again"' in drawn
    assert "forked from main: the first 2 messages are shared" in page.main
    assert "forked from doubt: the first 3 messages are shared" in page.main


def test_a_branch_says_what_it_inherits_and_from_whom(
    state: Store, visitor: Visitor, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = debate(state)
    first = visitor.get(f"/conversations/{id}").main
    assert "Messages of main 4 in all" in first
    assert "inherited" not in first
    again = visitor.get(f"/conversations/{id}", branch="again")
    words = [word for word in ("inherited from main", "inherited from doubt") for _ in range(again.main.count(word))]
    assert words == ["inherited from main"] * 2 + ["inherited from doubt"]
    assert again.main.index("main says 1") < again.main.index("doubt says") < again.main.index("fields 2")
    assert again.main.index("doubt says") < again.main.index("forked here: from now on the messages are its own")
    assert "main says 2" not in again.main
    assert "<strong>this</strong>" in again.text
    monkeypatch.setenv("PERSIST_DATABASE_URL", database_url)
    printed = CliRunner().invoke(main, ["conversations", "show", id, "--branch", "again", "--json"]).output
    assert visitor.json(f"/conversations/{id}", branch="again") == json.loads(printed)
    printed = CliRunner().invoke(main, ["conversations", "show", id, "--json"]).output
    assert visitor.json(f"/conversations/{id}") == visitor.json(f"/conversations/{id}", branch="all") == json.loads(printed)


def test_all_messages_are_shown_on_request(state: Store, visitor: Visitor) -> None:
    page = visitor.get(f"/conversations/{debate(state)}", branch="all").main
    assert "All messages of the conversation 6 in all" in page
    assert "main says 3" in page
    assert "doubt says this" in page


def test_long_branches_go_back_by_cursor_and_every_message_is_on_one_page(state: Store, visitor: Visitor) -> None:
    with state.begin() as tx:
        tx.conversations.sessions.create(id="long")
        tx.conversations.branches.create("long", id="root")
        for number in range(120):
            say(tx, "root", f"m{number}", f"line-{number:03}.")
        tx.conversations.branches.fork("root", new_id="fork")
        for number in range(120, 230):
            say(tx, "fork", f"m{number}", f"line-{number:03}.")
    seen, inherited, before = list[str](), 0, ""
    while True:
        page = visitor.get("/conversations/long?branch=fork" + before)
        seen = [word for word in page.main.split() if word.startswith("line-")] + seen
        inherited += page.main.count("inherited from root")
        if "older messages" not in page.main:
            break
        before = "&before=" + page.text.partition("before=")[2].partition('"')[0]
    assert seen == [f"line-{number:03}." for number in range(230)]
    assert inherited == 120
    assert visitor.get("/conversations/long?before=x").status == 400
    assert visitor.get("/conversations/long?branch=all&before=31").main.count("line-") == 31


def test_what_is_missing_is_named(state: Store, visitor: Visitor) -> None:
    id = debate(state)
    assert "There is no session" in visitor.get("/conversations/none").main
    answer = visitor.get(f"/conversations/{id}", branch="none")
    assert answer.status == 404
    assert "There is no branch" in answer.main


def test_the_history_of_a_status_says_who_and_why(state: Store, visitor: Visitor) -> None:
    id = debate(state)
    with state.begin() as tx:
        tx.conversations.sessions.set_status(id, "failed", reason="no time", actor="watchdog", source="system")
        tx.conversations.sessions.set_status(id, "running", actor="maria", override="it was down")
        tx.conversations.branches.finalize("doubt", "completed")
    page = visitor.get(f"/conversations/{id}").main
    assert "running failed system: watchdog no time" in page
    assert "failed running executor: maria although it had ended: it was down" in page
    assert "Status of the branch over time" in visitor.get(f"/conversations/{id}", branch="doubt").main


def test_letters_are_shown_in_the_boxes_of_a_branch(state: Store, visitor: Visitor) -> None:
    id = debate(state)
    with state.begin() as tx:
        send = tx.conversations.exchange.send
        send(sender="main", recipient="doubt", content="What does it cost?", channel="work")
        for number in range(31):
            send(sender="doubt", recipient="main", content=f"letter-{number}.")
    page = visitor.get(f"/conversations/{id}").main
    assert "Inbox 31 unread" in page
    assert "main → doubt, in work" in page
    assert "letter-29." in page
    assert "letter-30." not in page
    rest = visitor.get(f"/conversations/{id}").text.partition("inbox=")[2].partition('"')[0]
    assert "letter-30." in visitor.get(f"/conversations/{id}?branch=main&inbox={rest}").main
    assert "This branch has written to nobody." in visitor.get(f"/conversations/{id}", branch="again").main


def test_hostile_text_is_shown_in_every_place(state: Store, visitor: Visitor) -> None:
    with state.begin() as tx:
        sessions, branches = tx.conversations.sessions, tx.conversations.branches
        sessions.create(id="evil", name=EVIL, user=EVIL, agent_name=EVIL, node_metadata={EVIL: EVIL}, show_topic=EVIL)
        branches.create("evil", id=EVIL, name=EVIL, user=EVIL, node_metadata={"x": EVIL})
        branches.fork(EVIL, at=0, name=EVIL)
        say(tx, EVIL, EVIL, EVIL, sender=EVIL, recipient=EVIL, channel=EVIL)
        say(tx, EVIL, "second", {EVIL: EVIL}, node_metadata={EVIL: EVIL})
        tx.conversations.exchange.send(sender=EVIL, recipient=EVIL, content=EVIL, channel=EVIL)
        sessions.set_status("evil", "failed", reason=EVIL, actor=EVIL, evidence_refs=[EVIL])
    for page in (
        visitor.get("/conversations"),
        visitor.get("/conversations/evil"),
        visitor.get("/conversations/evil?branch=all"),
    ):
        assert page.status == 200
        assert "<script>alert" not in page.text
        assert "\u202e" not in page.text


def test_branches_in_a_circle_and_without_a_parent_are_shown(state: Store, visitor: Visitor, database_url: str) -> None:
    id = debate(state)
    raw = Raw(database_url)
    raw.rows("UPDATE branches SET parent_branch_id = 'again', forked_at_ord = 1 WHERE id = 'doubt'")
    page = visitor.get(f"/conversations/{id}", branch="again")
    assert page.status == 200
    assert "The messages cannot be read" in page.main
    raw.rows("UPDATE branches SET parent_branch_id = 'gone', forked_at_ord = -3 WHERE id = 'doubt'")
    raw.close()
    for branch in ("again", "doubt", "main"):
        assert visitor.get(f"/conversations/{id}", branch=branch).status == 200
