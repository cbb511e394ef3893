"""The list of sessions: newest first, filtered, in pages that neither repeat nor skip a session nobody touched."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from persist import Store
from persist.errors import InvalidValue
from tests.cases import each
from tests.contract.chat.scenes import create, say
from tests.contract.conftest import Raw, ids_of_pages
from tests.query_plans import Asked, plan, rows_read


def test_sessions_of_an_owner_and_archived_ones(store: Any, clock: Any) -> None:
    mine = []
    for number in range(5):
        clock.advance(seconds=1)
        mine.append(create(store, owner="maria", metadata={"title": f"{number}"}))
        create(store, owner="omar")
        create(store)
    with store.begin() as tx:
        tx.chat.sessions.archive(mine[1])
        tx.chat.sessions.archive(mine[3])
    sessions = store.chat.sessions
    assert sessions.get(mine[0]).owner == "maria"
    first = sessions.list(owner="maria", limit=2)
    rest = sessions.list(owner="maria", limit=2, after=first.cursor)
    assert [session.id for session in [*first.items, *rest.items]] == [mine[4], mine[2], mine[0]]
    assert [session.id for session in sessions.list(owner="maria", archived=True).items] == [mine[3], mine[1]]
    assert len(sessions.list(owner="maria", include_archived=True).items) == len(mine)
    assert len(sessions.list(archived=True).items) == 2
    assert sessions.list(owner="nobody").items == []
    with pytest.raises(InvalidValue):
        sessions.list(owner="omar", after=first.cursor)
    with pytest.raises(InvalidValue):
        sessions.list(archived=1)
    with pytest.raises(InvalidValue):
        sessions.list(owner="")


def test_sessions_with_all_of_the_given_metadata(store: Any, clock: Any) -> None:
    described: tuple[dict[str, Any], ...] = (
        {"project": "docs", "pinned": True, "stars": 3, "note": None},
        {"project": "docs", "pinned": False, "stars": 3.0, "note": "x", 'zoë "q".k': "é"},
        {"project": ["docs"], "pinned": 1, "stars": "3", "nested": {"project": "docs"}},
        {},
    )
    made = []
    for metadata in described:
        clock.advance(seconds=1)
        made.append(create(store, owner="maria", metadata=metadata))
    create(store, owner="omar", metadata=described[0])

    def found(**metadata: Any) -> list[int]:
        return [made.index(one.id) for one in store.chat.sessions.list(owner="maria", metadata=metadata).items]

    assert found(project="docs") == [1, 0]
    assert found(project="docs", pinned=True) == [0]
    assert found(pinned=1) == [2]
    assert found(stars=3) == found(stars=3.0) == [1, 0]
    assert found(stars="3") == [2]
    assert found(note=None) == [0]
    assert found(**{'zoë "q".k': "é"}) == [1]
    assert found(project="Docs") == found(absent=None) == found(project="docs", stars=4) == []
    assert found() == [3, 2, 1, 0]
    assert len(store.chat.sessions.list(metadata={"project": "docs"}).items) == 3


def test_sessions_with_a_text_in_their_title(store: Any, clock: Any) -> None:
    titles = ("Über Straßen", "100 % of_it", "100 things", "back\\slash", "ĿIST \ufdd0 end", None, 7)
    made = []
    for title in titles:
        clock.advance(seconds=1)
        made.append(create(store, metadata={} if title is None else {"title": title, "other": "über"}))

    def found(search: str) -> list[Any]:
        return [titles[made.index(one.id)] for one in store.chat.sessions.list(search=search).items]

    assert found("über") == found("ÜBER STRA") == found("Über s") == ["Über Straßen"]
    assert found("100") == ["100 things", "100 % of_it"]
    assert found("100 %") == found("f_i") == ["100 % of_it"]
    assert found("fxi") == found("other") == []
    assert found("K\\s") == ["back\\slash"]
    assert found("\ufdd0 E") == ["ĿIST \ufdd0 end"]
    assert found("7") == [7]


def test_filters_combine_and_pages_go_on_within_them(store: Any, clock: Any) -> None:
    made = []
    for number in range(6):
        clock.advance(seconds=1)
        made.append(create(store, owner="maria", metadata={"title": f"Plan {number}", "team": number % 2}))
    options: dict[str, Any] = {"owner": "maria", "metadata": {"team": 0}, "search": "plan", "limit": 2}
    first = store.chat.sessions.list(**options)
    rest = store.chat.sessions.list(**options, after=first.cursor)
    assert [one.id for one in [*first.items, *rest.items]] == [made[4], made[2], made[0]]
    for other in ({"metadata": {"team": 1}}, {"search": "pla"}, {"metadata": None}, {"search": None}):
        with pytest.raises(InvalidValue):
            store.chat.sessions.list(**{**options, **other}, after=first.cursor)


@each(
    "filters",
    [
        {"metadata": {"tags": ["a"]}},
        {"metadata": {"nested": {}}},
        {"metadata": ["a"]},
        {"metadata": {1: "a"}},
        {"metadata": {"a": float("nan")}},
        {"metadata": {"a": 2**63}},
        {"metadata": {"a": "x\x00y"}},
        {"metadata": {f"k{number}": 1 for number in range(17)}},
        {"search": ""},
        {"search": 7},
        {"search": "a\x00"},
        {"search": "x" * 100_000},
    ],
)
def test_a_filter_that_cannot_be_asked_for_is_refused(store: Any, filters: dict[str, Any]) -> None:
    create(store)
    with pytest.raises(InvalidValue):
        store.chat.sessions.list(**filters)


@pytest.mark.parametrize("backend", ["sqlite"])
def test_metadata_that_another_program_spoilt_meets_no_filter(store: Any, raw: Raw, clock: Any) -> None:
    good = create(store, metadata={"team": "a", "title": "Plan"})
    for number, spoilt in enumerate(("{oops", '["a"]', '"team"', "7", "")):
        raw.rows("UPDATE chat_sessions SET metadata_json = ? WHERE id = ?", spoilt, create(store, id=f"ses_{number}"))
    assert [one.id for one in store.chat.sessions.list(metadata={"team": "a"}).items] == [good]
    assert [one.id for one in store.chat.sessions.list(search="plan").items] == [good]


@pytest.mark.parametrize("backend", ["postgres"])
def test_rare_metadata_is_found_along_its_index(database_url: str, asked: list[Asked]) -> None:
    with Store.open(database_url) as store:
        wanted = create(store, metadata={"ticket": "T-1"})
        with closing(Raw(database_url)) as raw:
            raw.rows(
                "INSERT INTO chat_sessions (id, agent, created_at, updated_at, model_json, metadata_json) "
                "SELECT 's' || n, 'build', n, n, '{}', json_build_object('ticket', n) FROM generate_series(1, 20000) AS s(n)"
            )
            raw.rows("ANALYZE")
        asked.clear()
        assert [one.id for one in store.chat.sessions.list(metadata={"ticket": "T-1"}).items] == [wanted]
        for statement in asked:
            assert rows_read(database_url, statement) <= 2, plan(database_url, statement)


def test_a_fork_keeps_the_owner_and_counts_the_copies_in_its_title(store: Any, clock: Any) -> None:
    session = create(store, owner="maria", metadata={"title": "Docs"})
    said = say(store, session, "hi")
    titles = []
    for _ in range(3):
        child = store.chat.sessions.fork(session, said)
        assert child.owner == "maria"
        titles.append(child.metadata["title"])
        session, said = child.id, store.chat.messages.list(child.id)[-1]["id"]
    assert titles == ["Docs (copy)", "Docs (copy 2)", "Docs (copy 3)"]


def test_changing_a_title_does_not_reorder_the_list(store: Any, clock: Any) -> None:
    older = create(store)
    clock.advance(seconds=1)
    newer = create(store)
    clock.advance(seconds=1)
    with store.begin() as tx:
        tx.chat.sessions.update_metadata(older, {"title": "renamed"})
        tx.chat.sessions.add_permission(older, {"permission": "bash", "pattern": "*", "action": "ask", "source": "session"})
        tx.chat.sessions.archive(older)
        tx.chat.sessions.unarchive(older)
    assert [session.id for session in store.chat.sessions.list().items] == [newer, older]


def pages(store: Any, **options: Any) -> Iterator[list[str]]:
    return ids_of_pages(store.chat.sessions.list, **options)


@pytest.fixture
def ten(store: Any, clock: Any) -> list[str]:
    """Ten sessions, oldest first; pairs of them share their instant."""
    made = []
    for number in range(10):
        clock.advance(seconds=number % 2)
        made.append(create(store, agent="plan" if number % 3 == 0 else "build", workspace_root=f"/{number % 2}"))
    return made


def test_most_recently_updated_first_and_ids_break_ties(store: Any, ten: list[str]) -> None:
    assert list(pages(store)) == [ten[::-1]]


def test_a_page_that_ends_exactly_has_no_cursor(store: Any, ten: list[str]) -> None:
    assert [len(page) for page in pages(store, limit=5)] == [5, 5]
    assert [len(page) for page in pages(store, limit=4)] == [4, 4, 2]


def test_a_session_touched_while_paging_neither_repeats_nor_hides_another(store: Any, clock: Any, ten: list[str]) -> None:
    seen = []
    for number, page in enumerate(pages(store, limit=3)):
        seen += page
        if number == 0:
            clock.advance(seconds=60)
            say(store, ten[0], "the oldest becomes the newest")
    untouched = [id for id in ten[::-1] if id != ten[0]]
    assert [id for id in seen if id != ten[0]] == untouched


def test_agent_and_workspace_filter(store: Any, ten: list[str]) -> None:
    plan = [id for number, id in enumerate(ten) if number % 3 == 0]
    assert list(pages(store, agent="plan")) == [plan[::-1]]
    both = [id for number, id in enumerate(ten) if number % 3 == 0 and number % 2 == 1]
    assert list(pages(store, agent="plan", workspace_root="/1")) == [both[::-1]]
    assert list(pages(store, agent="nobody")) == [[]]
