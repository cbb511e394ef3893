"""Folders of runs become sessions: once each, whole or not at all."""

import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from persist.conversations import import_runs
from persist.errors import Closed, NotFound
from tests.cases import each
from tests.contract.conversations.making import branch_of, branches, members, session_of, shown, stored
from tests.contract.conversations.run_files import AT, SPOKEN, branch, make_run, message, report, write
from tests.contract.faces import in_one_way


def test_a_run_is_imported_once(store: Any, tmp_path: Path, raw: Any) -> None:
    make_run(tmp_path, "r1", b1=branch("s1", "m1", "m2"))
    assert import_runs(store, tmp_path) == report(imported=1)
    counts = {table: raw.count(table) for table in ("sessions", "branches", "messages", "progressions", "progression_members")}
    assert counts == {"sessions": 1, "branches": 1, "messages": 3, "progressions": 2, "progression_members": 6}
    assert import_runs(store, str(tmp_path)) == report(skipped=1)
    make_run(tmp_path, "r2", b2=branch("m3"))
    assert import_runs(store, tmp_path) == report(imported=1, skipped=1)
    assert raw.count("sessions") == 2


def test_the_order_list_is_followed_and_not_the_pile(store: Any, tmp_path: Path) -> None:
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
    found = store.conversations.messages.get("m")
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
    store.conversations.messages.put(message("m1", content="live"))
    make_run(tmp_path, "r", b=branch("m1", "m2"))
    assert import_runs(store, tmp_path) == report(imported=1)
    assert [one.content for one in store.conversations.branches.history("b")] == ["live", {"text": "m2"}]


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


def test_what_is_wrong_with_the_store_ends_the_import(store: Any, tmp_path: Path) -> None:
    make_run(tmp_path, "r", b=branch("m"))
    store.close()
    with pytest.raises(Closed):
        import_runs(store, tmp_path)


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


# What is read of the files of a run, in which spellings, and what is left out with a warning.


OTHER_SPELLINGS = ["collections", "list", "mapping", "nested branch", "db mode"]


def test_what_a_manifest_says_of_the_session(store: Any, tmp_path: Path) -> None:
    manifest = {
        "id": "run-1",
        "name": "Nightly",
        "user": "maria",
        "agent": "builder",
        "playbook": "release",
        "kind": "Show_Play",
        "show_topic": "topic",
        "show_play_name": "play",
        "artifact_root": "out/1",
        "created_at": 1_746_000_000,
        "started_at": "2025-05-01T10:00:00+02:00",
        "ended_at": "2025-05-01T09:30:00Z",
        "status": "success",
        "provider": "p",
        "model": "m0",
        "branches": [{"id": "b", "name": "worker", "model": "m1"}, "odd"],
    }
    make_run(tmp_path, "folder", manifest, b=branch("m1", user="ana", metadata={"tools": ["sh"], "model": "own"}))
    assert import_runs(store, tmp_path) == report(imported=1)
    session, made = session_of(store, "run-1"), branch_of(store, "b")
    hints = (session.agent_name, session.playbook_name, session.invocation_kind, session.show_topic, session.show_play_name)
    assert hints == ("builder", "release", "show-play", "topic", "play")
    seen = (session.name, session.user, session.artifacts_path, session.source_kind)
    assert seen == ("Nightly", "maria", "out/1", "imported_fs")
    assert session.created_at == datetime.fromtimestamp(1_746_000_000, UTC)
    assert session.started_at == datetime(2025, 5, 1, 8, tzinfo=UTC)
    assert session.ended_at == datetime(2025, 5, 1, 9, 30, tzinfo=UTC)
    assert session.ended_at_is_approximate is False
    assert session.updated_at == session.last_message_at == SPOKEN
    assert (made.name, made.user, made.created_at) == ("worker", "ana", SPOKEN)
    assert made.node_metadata == {"tools": ["sh"], "model": "own", "provider": "p"}


def test_a_manifest_that_says_nothing(store: Any, tmp_path: Path, clock: Any) -> None:
    folder = make_run(tmp_path, "r", {})
    os.utime(folder / "run.json", (AT, AT))
    assert import_runs(store, tmp_path) == report(imported=1)
    session = session_of(store, "r")
    seen = (session.status, session.source_kind, session.name, session.invocation_kind)
    assert seen == ("completed", "imported_fs", None, None)
    assert (session.started_at, session.last_message_at, session.first_msg_id) == (None, None, None)
    assert session.created_at == session.updated_at == session.ended_at == SPOKEN
    assert session.ended_at_is_approximate is True
    assert members(store, session.progression_id) == []


@each(
    ("said", "status"),
    [
        *[({"status": word}, word) for word in ("running", "completed", "completed_empty", "failed", "timed_out", "aborted")],
        ({"status": "success"}, "completed"),
        ({"status": "error"}, "failed"),
        ({"status": "timeout"}, "timed_out"),
        ({"status": "canceled"}, "cancelled"),
        ({"status": "Cancelled"}, "cancelled"),
        ({"status": "who knows"}, "completed"),
        ({"status": "error", "exit_code": 0}, "failed"),
        *[({"exit_code": code}, status) for code, status in ((0, "completed"), (1, "failed"), (124, "timed_out"))],
        *[
            ({"exit_code": code}, status)
            for code, status in ((130, "aborted"), (143, "cancelled"), (2, "failed"), (-9, "failed"))
        ],
        ({"status": None, "exit_code": 124}, "timed_out"),
        ({"status": " ", "exit_code": None}, "completed"),
        ({"exit_code": True}, "completed"),
    ],
    ids=str,
)
def test_the_status_of_a_run(store: Any, tmp_path: Path, said: dict[str, Any], status: str) -> None:
    run = f"r{len(list(tmp_path.iterdir()))}"
    make_run(tmp_path, run, {"run_id": run, "ended_at": AT, **said})
    import_runs(store, tmp_path)
    session = session_of(store, run)
    assert session.status == status
    assert session.ended_at == (None if status == "running" else SPOKEN)


@in_one_way(
    "content",
    ["", "{", "[]", "null", '"text"', '{"a": 1}}', "\ufeff\ufeff{}", "[" * 100_000],
    ids=["empty", "torn", "list", "null", "text", "more", "marks", "deep"],
)
def test_an_unreadable_manifest_is_an_error_and_the_others_go_on(
    store: Any, tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    make_run(tmp_path, "r1", content, b1=branch("m1"))
    make_run(tmp_path, "r2", b2=branch("m2"))
    with caplog.at_level(logging.WARNING, logger="persist"):
        assert import_runs(store, tmp_path) == report(imported=1, errors=1)
    assert ["'r1'" in line for line in caplog.messages] == [True]
    assert stored(store, "m1", "m2") == ["m2"]
    write(tmp_path / "r1" / "run.json", {})
    assert import_runs(store, tmp_path) == report(imported=1, skipped=1)


def test_an_id_that_cannot_be_stored_is_an_error(store: Any, tmp_path: Path) -> None:
    make_run(tmp_path, "r1", {"run_id": "r\0"}, b1=branch("m1"))
    assert import_runs(store, tmp_path) == report(imported=1)
    assert branches(store, "r1") == ["b1"]  # the folder's name serves


def test_folders_without_a_manifest_are_no_runs(store: Any, tmp_path: Path) -> None:
    write(tmp_path / "logs" / "branches" / "b.json", branch("m"))
    write(tmp_path / "run.json", {})
    assert import_runs(store, tmp_path) == report()


@in_one_way("spelling", OTHER_SPELLINGS)
def test_spellings_of_a_branch_file(store: Any, tmp_path: Path, spelling: str) -> None:
    pile, order = [message("m2"), message("m1")], ["m1", "m2"]
    plain = [{name: value for name, value in one.items() if name != "id"} for one in pile]
    renamed = [{name.replace("metadata", "node_metadata"): value for name, value in one.items()} for one in pile]
    content: Any = {
        "collections": {"id": "b", "messages": {"collections": pile, "progression": {"order": order}}},
        "list": {"id": "b", "messages": pile, "order": order},
        "mapping": {"id": "b", "pile": dict(zip(["m2", "m1"], plain, strict=True)), "progression": order},
        "nested branch": {"branch": {"id": "b", "name": "n"}, "messages": {"pile": pile}, "progression": {"order": order}},
        "db mode": {"branch": {"branch_id": "b"}, "pile": {"collections": renamed, "order": [{"id": "m1"}, "m2"]}},
    }[spelling]
    make_run(tmp_path, "r", file=content)
    assert import_runs(store, tmp_path) == report(imported=1)
    assert branches(store, "r") == ["b"]
    assert shown(store, "b") == ["m1", "m2"]
    assert store.conversations.messages.get("m1").lion_class_str == "x.user"


@in_one_way("content", ["{", "[]", {}, {"messages": 7}], ids=str)
def test_an_unreadable_branch_file_is_warned_of_and_the_others_go_on(
    store: Any, tmp_path: Path, content: Any, caplog: pytest.LogCaptureFixture
) -> None:
    make_run(tmp_path, "r", b1=branch("m1"), b2=content, b3=branch("m3"))
    with caplog.at_level(logging.WARNING, logger="persist"):
        assert import_runs(store, tmp_path) == report(imported=1)
    assert ["'b2.json'" in line for line in caplog.messages] == [True]
    assert branches(store, "r") == ["b1", "b3"]
    assert members(store, session_of(store, "r").progression_id) == ["m1", "m3"]


@in_one_way(
    "wrong",
    [{"content": None}, {"role": " "}, {"content": float("nan")}, {"sender": 7}, {"embedding": "x"}, {"metadata": []}],
    ids=str,
)
def test_a_message_that_cannot_be_stored_is_warned_of_and_left_out(
    store: Any, tmp_path: Path, wrong: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    pile = [message("s1", "system") | wrong, message("m1"), 7, {"role": "user"}]
    make_run(tmp_path, "r", b={"messages": pile, "order": ["s1", "m1"]})
    with caplog.at_level(logging.WARNING, logger="persist"):
        assert import_runs(store, tmp_path) == report(imported=1)
    assert sum("2 entries" in line for line in caplog.messages) == 1
    assert sum("'s1'" in line for line in caplog.messages) == 1
    assert shown(store, "b") == ["m1"]
    assert branch_of(store, "b").system_msg_id is None


@in_one_way("at", [None, "yesterday", 1e300, float("inf"), [], True])
def test_an_instant_that_is_none_is_that_of_the_file(store: Any, tmp_path: Path, at: Any) -> None:
    make_run(tmp_path, "r", b={"created_at": at, "messages": [message("m", created_at=at)]})
    assert import_runs(store, tmp_path) == report(imported=1)
    assert store.conversations.messages.get("m").created_at == SPOKEN
    assert branch_of(store, "b").created_at == SPOKEN


def test_a_branch_that_went_on_in_another_run_is_kept_in_both(store: Any, tmp_path: Path) -> None:
    make_run(tmp_path, "r1", b=branch("m1"))
    make_run(tmp_path, "r2", b=branch("m1", "m2"))
    assert import_runs(store, tmp_path) == report(imported=2)
    assert branches(store, "r1") == ["b"]
    (again,) = branches(store, "r2")
    assert (shown(store, "b"), shown(store, again)) == (["m1"], ["m1", "m2"])
    assert branch_of(store, again).node_metadata == {"imported_branch_id": "b"}


@pytest.mark.parametrize(
    ("pointers", "kept"),
    [
        ({"parent_branch_id": "b1", "forked_at_ord": 1}, True),
        ({"parent_branch_id": "b1"}, False),
        ({"forked_at_ord": 1}, False),
        ({"parent_branch_id": "b2", "forked_at_ord": 0}, False),
        ({"parent_branch_id": "b1", "forked_at_ord": -1}, False),
    ],
    ids=str,
)
def test_fork_pointers_are_kept_when_they_are_whole(store: Any, tmp_path: Path, pointers: dict[str, Any], kept: bool) -> None:
    make_run(tmp_path, "r", b1=branch("m1", "m2"), b2=branch("m3", metadata=pointers))
    assert import_runs(store, tmp_path) == report(imported=1)
    assert shown(store, "b2") == (["m1", "m3"] if kept else ["m3"])


def test_symbolic_links_are_not_followed(store: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    outside, runs = tmp_path / "outside", tmp_path / "runs"
    make_run(outside, "r1", b1=branch("m1"))
    runs.mkdir()
    (runs / "r1").symlink_to(outside / "r1")
    (runs / "r2").mkdir()
    (runs / "r2" / "run.json").symlink_to(outside / "r1" / "run.json")
    make_run(runs, "r3", b3=branch("m3"))
    (runs / "r3" / "branches" / "b1.json").symlink_to(outside / "r1" / "branches" / "b1.json")
    make_run(runs, "r4")
    (runs / "r4" / "branches").symlink_to(outside / "r1" / "branches")
    with caplog.at_level(logging.WARNING, logger="persist"):
        assert import_runs(store, runs) == report(imported=2, errors=1)
    assert len(caplog.messages) == 4
    assert stored(store, "m1", "m3") == ["m3"]
    assert (branches(store, "r3"), branches(store, "r4")) == (["b3"], [])


def test_what_is_no_file_is_not_waited_for(store: Any, tmp_path: Path) -> None:
    make_run(tmp_path, "r1", b1=branch("m1"))
    os.mkfifo(tmp_path / "r1" / "branches" / "b2.json")
    (tmp_path / "r2").mkdir()
    os.mkfifo(tmp_path / "r2" / "run.json")
    (tmp_path / "r3" / "run.json").mkdir(parents=True)
    assert import_runs(store, tmp_path) == report(imported=1, errors=2)
    assert branches(store, "r1") == ["b1"]


@each("what", ["missing", "file", "nul"])
def test_a_folder_that_is_none(store: Any, tmp_path: Path, what: str) -> None:
    write(tmp_path / "file", "")
    with pytest.raises(NotFound):
        import_runs(store, tmp_path / what.replace("nul", "\0"))
