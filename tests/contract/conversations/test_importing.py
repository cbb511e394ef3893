"""Folders of runs become sessions: once each, whole or not at all."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.conversations import import_runs
from persist.errors import Closed
from tests.cases import each
from tests.contract.conversations.making import branch_of, branches, make_branch, make_session, members, session_of, shown, stored
from tests.contract.conversations.run_files import AT, branch, make_run, message, report
from tests.markdown import ROOT

# ---------------------------------------------------------------- what becomes of a run


def test_a_run_is_imported_once(store: Any, tmp_path: Path, raw: Any) -> None:
    """(c) 33"""
    make_run(tmp_path, "r1", b1=branch("s1", "m1", "m2"))
    assert import_runs(store, tmp_path) == report(imported=1)
    counts = {table: raw.count(table) for table in ("sessions", "branches", "messages", "progressions", "progression_members")}
    assert counts == {"sessions": 1, "branches": 1, "messages": 3, "progressions": 2, "progression_members": 6}
    assert import_runs(store, str(tmp_path)) == report(skipped=1)
    make_run(tmp_path, "r2", b2=branch("m3"))
    assert import_runs(store, tmp_path) == report(imported=1, skipped=1)
    assert raw.count("sessions") == 2


def test_the_order_list_is_followed_and_not_the_pile(store: Any, tmp_path: Path) -> None:
    """(c) 33"""
    make_run(tmp_path, "r", b=branch("m3", "m2", "m1", order=["m1", "m2", "gone", "m3"]))
    import_runs(store, tmp_path)
    assert shown(store, "b") == ["m1", "m2", "m3"]


@each("order", [[], ["gone"], None])
def test_without_an_order_the_pile_is_the_order(store: Any, tmp_path: Path, order: list[str] | None) -> None:
    content = branch("m2", "m1", order=order)
    if order is None:
        del content["messages"]["progression"]
    make_run(tmp_path, "r", b=content)
    import_runs(store, tmp_path)
    assert shown(store, "b") == ["m2", "m1"]


def test_the_pool_has_the_branches_by_the_time_of_their_files(store: Any, tmp_path: Path) -> None:
    """Bookmarks point at its ends; a message that two branches show is in it once."""
    make_run(tmp_path, "r", zz=branch("s1", "m1"), aa=branch("s1", "m2", "m3"))
    import_runs(store, tmp_path)
    session = session_of(store, "r")
    assert members(store, session.progression_id) == ["s1", "m1", "m2", "m3"]
    assert (session.first_msg_id, session.last_msg_id) == ("s1", "m3")
    assert sorted(branches(store, "r")) == ["aa", "zz"]
    assert shown(store, "aa") == ["s1", "m2", "m3"]


def test_the_first_system_message_is_the_branches(store: Any, tmp_path: Path) -> None:
    apart = {**branch("m9"), "system": message("s9", "system")}
    make_run(tmp_path, "r", b=branch("s2", "m1", "s1", order=["m1", "s1", "s2"]), none=branch("m2"), apart=apart)
    import_runs(store, tmp_path)
    assert branch_of(store, "b").system_msg_id == "s1"
    assert branch_of(store, "none").system_msg_id is None
    assert branch_of(store, "apart").system_msg_id == "s9"
    assert shown(store, "apart") == ["m9"]


def test_messages_are_what_put_makes_of_them(store: Any, tmp_path: Path) -> None:
    said = message("m", "assistant", content=["text", 0], sender="a", recipient="", channel=None, embedding=[0.5], extra=1)
    make_run(tmp_path, "r", b={"messages": {"collections": [said]}})
    import_runs(store, tmp_path)
    with store.read() as tx:
        found = tx.conversations.messages.get("m")
    assert found.to_dict() == {
        "id": "m",
        "created_at": AT,
        "node_metadata": {"lion_class": "x.assistant"},
        "content": ["text", 0],
        "embedding": [0.5],
        "sender": "a",
        "recipient": None,
        "channel": None,
        "role": "assistant",
    }
    assert found.lion_class_str == "x.assistant"


def test_only_what_a_branch_shows_is_stored(store: Any, tmp_path: Path) -> None:
    make_run(tmp_path, "r", b=branch("m1", "m2", order=["m2"]))
    import_runs(store, tmp_path)
    assert stored(store, "m1", "m2") == ["m2"]


def test_a_message_that_is_there_stays_as_it_is(store: Any, tmp_path: Path) -> None:
    with store.begin() as tx:
        tx.conversations.messages.put(message("m1", content="live"))
    make_run(tmp_path, "r", b=branch("m1", "m2"))
    assert import_runs(store, tmp_path) == report(imported=1)
    with store.read() as tx:
        assert [one.content for one in tx.conversations.branches.history("b")] == ["live", {"text": "m2"}]


# ---------------------------------------------------------------- one transaction per run


def test_a_run_that_fails_leaves_nothing_and_the_others_go_on(store: Any, tmp_path: Path, raw: Any) -> None:
    make_run(tmp_path, "r1", b1=branch("m1"))
    make_run(tmp_path, "r2", b2=branch("m2", metadata={"a": "x" * 17_000_000}))
    make_run(tmp_path, "r3", b3=branch("m3"))
    assert import_runs(store, tmp_path) == report(imported=2, errors=1)
    assert stored(store, "m1", "m2", "m3") == ["m1", "m3"]
    assert raw.count("progressions") == 4


def test_progress_is_told_before_the_first_run_and_after_each(store: Any, tmp_path: Path) -> None:
    for run in ("r1", "r2", "r3"):
        make_run(tmp_path, run)
    told: list[tuple[int, int]] = []
    import_runs(store, tmp_path, progress=lambda done, total: told.append((done, total)))
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_an_import_that_ends_in_the_middle_leaves_whole_runs(store: Any, tmp_path: Path, other: Any) -> None:
    for number in range(4):
        make_run(tmp_path, f"r{number}", **{f"b{number}": branch(f"m{number}")})

    def stop(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_runs(store, tmp_path, progress=stop)
    assert stored(other, "m0", "m1", "m2", "m3") == ["m0", "m1"]
    assert import_runs(store, tmp_path) == report(imported=2, skipped=2)


@pytest.mark.long
def test_a_killed_import_leaves_whole_runs_and_the_next_one_goes_on(database_url: str, tmp_path: Path) -> None:
    for number in range(100):
        make_run(tmp_path, f"r{number:03}", **{f"b{number}": branch(*(f"m{number}.{place}" for place in range(20)))})
    code = (
        "import sys; from persist import Store; from persist.conversations import import_runs\n"
        "import_runs(Store.open(sys.argv[1]), sys.argv[2], progress=lambda done, total: print(done, flush=True))"
    )
    command = [sys.executable, "-c", code, database_url, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while int(process.stdout.readline()) < 10:
            pass
        process.kill()
    with Store.open(database_url) as store:
        with store.read() as tx:
            there = [session.id for session in tx.conversations.sessions.list(limit=1000).items]
        assert 10 <= len(there) < 100
        whole = import_runs(store, tmp_path)
        assert whole == report(imported=100 - len(there), skipped=len(there))
        for number in range(100):
            assert shown(store, f"b{number}") == [f"m{number}.{place}" for place in range(20)]


def test_what_is_wrong_with_the_store_ends_the_import(store: Any, tmp_path: Path) -> None:
    make_run(tmp_path, "r", b=branch("m"))
    store.close()
    with pytest.raises(Closed):
        import_runs(store, tmp_path)


def test_a_live_session_of_that_id_is_not_touched(store: Any, tmp_path: Path) -> None:
    live = make_session(store, "r", name="live")
    make_branch(store, "r", "b")
    make_run(tmp_path, "r", b=branch("m"))
    assert import_runs(store, tmp_path) == report(skipped=1)
    assert session_of(store, "r") == live
    assert shown(store, "b") == []


def test_when_another_import_was_faster_the_slower_one_leaves_nothing(store: Any, other: Any, tmp_path: Path, raw: Any) -> None:
    """Both have seen that the session is not there yet."""
    make_run(tmp_path, "r", b=branch("m1", "m2"))

    class Slower:
        read = staticmethod(store.read)

        @staticmethod
        def transact(fn: Any) -> Any:
            assert import_runs(other, tmp_path) == report(imported=1)
            return store.transact(fn)

    assert import_runs(Slower, tmp_path) == report(skipped=1)
    counts = {table: raw.count(table) for table in ("sessions", "branches", "progressions", "progression_members")}
    assert counts == {"sessions": 1, "branches": 1, "progressions": 2, "progression_members": 4}
