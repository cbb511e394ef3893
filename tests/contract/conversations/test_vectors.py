"""Search by embedding: exact, the same on both databases and whatever computes it, over what the filters say."""

import struct
from collections.abc import Callable, Iterator
from math import inf, nan
from random import Random
from typing import Any

import pytest
from sqlalchemy import create_engine

from persist import Store
from persist.conversations import vector_search as vector_scope
from persist.conversations.schemas import ConvMessage
from tests.contract.conftest import Raw
from tests.contract.conversations.scenes import fork, make_branch, make_progression, message
from tests.contract.conversations.vector_scenes import METRICS, NEAR, WAYS, backend_of, found, keep, search
from tests.contract.faces import on_one_face


def test_the_first_that_is_there_is_used(store: Any, backend: str, every_way: Callable[..., list[str]]) -> None:
    assert every_way(backend_of) == (WAYS if backend == "sqlite" else ["numpy", "numpy", "python"])


def test_the_nearest_come_first_with_their_distances(way: str, store: Any) -> None:
    keep(store, east=[2.0, 0.0], north=[0.0, 3.0], west=[-1.0, 0.0], both=[3.0, 3.0])
    assert search(store, NEAR) == [("east", 0.0), ("both", pytest.approx(1 - 0.5**0.5, abs=1e-15)), ("north", 1.0), ("west", 2.0)]
    assert search(store, NEAR, metric="cosine") == search(store, NEAR)
    shown = search(store, [0.0, 0.0], metric="l2")
    assert shown == [("west", 1.0), ("east", 2.0), ("north", 3.0), ("both", pytest.approx(18**0.5))]


def test_whole_messages_are_given(way: str, store: Any) -> None:
    keep(store, far=[0.0, 1.0], near=[1.0, 0.5])
    [(given, _)] = store.conversations.vectors.search(NEAR, k=1)
    assert isinstance(given, ConvMessage)
    assert given == store.conversations.messages.get("near")
    assert (given.content, given.embedding) == ("near", [1.0, 0.5])


def test_equal_distances_come_in_the_order_of_their_ids(way: str, store: Any) -> None:
    alike = {f"m{number}": [0.3, 0.1] for number in Random(3).sample(range(100, 130), 30)}
    keep(store, nearer=[1.0, 0.0], **alike)
    for metric in METRICS:
        assert found(store, k=8, metric=metric) == ["nearer", *sorted(alike)[:7]]


def test_ten_unless_it_says_how_many(way: str, store: Any) -> None:
    keep(store, **{f"m{number:02}": [1.0, number / 10] for number in range(30)})
    everything = found(store, k=1000)
    assert everything == [f"m{number:02}" for number in range(30)]
    assert found(store) == everything[:10]
    assert [found(store, k=k) for k in (1, 29, 30)] == [everything[:k] for k in (1, 29, 30)]


def test_the_next_nearest_take_the_places_of_those_that_cannot_be_read(way: str, store: Any, raw: Raw) -> None:
    keep(store, **{f"m{number:02}": [1.0, number / 10] for number in range(12)})
    everything = found(store, k=12)
    raw.rows("UPDATE messages SET node_metadata = '7' WHERE id IN ('m00', 'm02', 'm03', 'm04')")
    raw.rows(f"UPDATE messages SET id = '{'z' * 700}' WHERE id = 'm05'")  # longer than an id may be
    left = [id for id in everything if id not in ("m00", "m02", "m03", "m04", "m05")]
    for metric in METRICS:
        assert [found(store, k=k, metric=metric) for k in (1, 2, 3, 7, 12)] == [left[:1], left[:2], left[:3], left, left]


def test_only_embeddings_of_the_querys_dimension_are_measured(way: str, store: Any) -> None:
    keep(store, one=[1.0], two=[1.0, 0.0], three=[1.0, 0.0, 0.0], empty=[], none=None)
    assert [found(store, query) for query in ([2.0], [2.0, 0.0], [2.0, 0.0, 0.0], [1.0] * 4)] == [["one"], ["two"], ["three"], []]


def test_a_zero_vector_is_at_one_from_everything(way: str, store: Any) -> None:
    keep(store, zero=[0.0, -0.0], same=[1.0, 0.0], behind=[-1.0, 0.1])
    assert search(store, NEAR)[:2] == [("same", 0.0), ("zero", 1.0)]
    assert search(store, [0.0, 0.0]) == [("behind", 1.0), ("same", 1.0), ("zero", 1.0)]
    assert search(store, NEAR, metric="l2")[:2] == [("same", 0.0), ("zero", 1.0)]


def test_packed_bytes_are_a_query_too(way: str, store: Any) -> None:
    keep(store, a=[0.1, 0.2], b=[0.2, 0.1])
    packed = struct.pack("<2f", 0.1, 0.2)
    for query in (packed, bytearray(packed), memoryview(packed), (0.1, 0.2)):
        assert search(store, query, metric="l2") == search(store, [0.1, 0.2], metric="l2")
    assert search(store, [0.1, 0.2], metric="l2")[0] == ("a", 0.0), "a query is kept to float32, as what it looks for is"


def clouds(size: int, count: int) -> dict[str, list[float]]:
    """Vectors of all lengths, some of them alike but for the last bit."""
    random = Random(size)
    base = [random.gauss(0, 1) for _ in range(size)]
    scales = [1.0, 1.0, 1.0, 1e-20, 1e-30, 1e15, 1e30]
    return {
        f"m{number:04}": [scale * (near + random.choice([0.0, 1e-7, 1e-3, 1.0]) * random.gauss(0, 1)) for near in base]
        for number in range(count)
        for scale in [random.choice(scales)]
    }


@pytest.mark.long
@on_one_face
@pytest.mark.parametrize("size", [1, 2, 16, 100])
def test_every_way_gives_the_same_to_the_last_bit(
    store: Any, every_way: Callable[..., list[Any]], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_scope, "_CHUNK_BYTES", 4 * size * 100)
    kept = clouds(size, 250)  # in three chunks
    keep(store, **kept)
    for query in (kept["m0000"], kept["m0007"], [0.0] * size):
        for metric in METRICS:
            for k in (1, 10, 150):
                answers = every_way(lambda store, q=query, k=k, m=metric: search(store, q, k=k, metric=m))
                assert len(answers[0]) == k
                assert answers[1:] == answers[:1] * 2
                assert answers[0] == sorted(answers[0], key=lambda pair: (pair[1], pair[0]))


def test_both_databases_give_the_same(sqlite_url: str, postgres_url: str) -> None:
    kept = clouds(12, 300)
    answers = []
    for url in (sqlite_url, postgres_url):
        with Store.open(url) as store:
            keep(store, **kept)
            answers.append([search(store, kept["m0003"], k=50, metric=metric) for metric in METRICS])
    assert answers[0] == answers[1]


def test_many_are_read_a_few_at_a_time(way: str, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_scope, "_CHUNK_BYTES", 64)
    keep(store, **{f"m{number:03}": [float(number), 1.0] for number in range(100)})
    assert found(store, [0.0, 1.0], metric="l2", k=3) == ["m000", "m001", "m002"]
    assert found(store, [99.0, 1.0], metric="l2", k=3) == ["m099", "m098", "m097"]


def test_a_transaction_finds_what_it_wrote(way: str, store: Any) -> None:
    with store.begin() as tx:
        tx.conversations.messages.put(message("a", embedding=NEAR))
        assert [one.id for one, _ in tx.conversations.vectors.search(NEAR)] == ["a"]
        tx.conversations.messages.put(message("b", embedding=NEAR))
        assert [one.id for one, _ in tx.conversations.vectors.search(NEAR)] == ["a", "b"]
        assert tx.conversations.messages.delete("a")
        assert [one.id for one, _ in tx.conversations.vectors.search(NEAR)] == ["b"]


def test_foreign_bytes_that_are_no_finite_numbers_are_skipped(way: str, store: Any, raw: Raw) -> None:
    keep(store, a=[1.0, 0.0], b=[1.0, 0.1], c=[1.0, 0.2], d=[1.0, 0.3])
    for id, odd in (("a", (nan, 0.0)), ("b", (inf, 0.0)), ("c", (-inf, inf))):
        raw.rows("UPDATE messages SET embedding = ? WHERE id = ?", struct.pack("<2f", *odd), id)
    for metric in METRICS:
        assert found(store, metric=metric) == found(store, k=1, metric=metric) == ["d"]


def test_only_what_is_given_has_its_content_read(way: str, sqlite_url: str, open_raw: Callable[[str], Raw]) -> None:
    """Only SQLite holds content that cannot be read."""
    with Store.open(sqlite_url) as store:
        keep(store, near=[1.0, 0.0], far=[-1.0, 0.0])
        open_raw(sqlite_url).rows("UPDATE messages SET content = '{' WHERE id = 'far'")
        assert found(store, k=1) == ["near"]


# Search by embedding in a session, in a branch, and on connections of the caller's.


def test_a_sessions_pool_is_searched_alone(way: str, store: Any) -> None:
    ours, theirs = make_branch(store).session_id, make_branch(store).session_id
    keep(store, ours, a=[1.0, 0.0], both=[1.0, 0.1])
    keep(store, theirs, b=[1.0, 0.0], both=[1.0, 0.1])
    keep(store, nobodys=[1.0, 0.0])
    assert found(store, session_id=ours) == ["a", "both"]
    assert found(store, session_id=theirs) == ["b", "both"]
    assert found(store) == ["a", "b", "nobodys", "both"]


def test_a_branch_is_searched_with_what_it_inherits(way: str, store: Any) -> None:
    parent = make_branch(store)
    with store.begin() as tx:
        for id, north in (("first", 0.1), ("second", 0.2)):
            tx.conversations.messages.record(parent.id, message(id, embedding=[1.0, north]))
    child = fork(store, parent.id, at=1)
    grandchild = fork(store, child.id)
    with store.begin() as tx:
        tx.conversations.messages.record(parent.id, message("later", embedding=[1.0, 0.0]))
        tx.conversations.messages.record(grandchild.id, message("own", embedding=[1.0, 0.3]))
    assert found(store, branch_id=parent.id) == ["later", "first", "second"]
    assert found(store, branch_id=child.id) == ["first"]
    assert found(store, branch_id=grandchild.id) == ["first", "own"]


def test_session_and_branch_together_are_what_is_in_both(way: str, store: Any) -> None:
    pool = make_progression(store, ["a", "b"])
    with store.begin() as tx:
        session = tx.conversations.sessions.create(progression_id=pool)
        own = tx.conversations.branches.create(session.id, progression_id=tx.conversations.progressions.create(ids=["b", "c"]))
    keep(store, a=[1.0, 0.0], b=[0.5, 1.0], c=[1.0, 0.0])
    assert found(store, session_id=session.id) == ["a", "b"]
    assert found(store, branch_id=own.id) == ["c", "b"]
    assert found(store, session_id=session.id, branch_id=own.id) == ["b"]


def test_a_message_counts_once_however_often_it_is_named(way: str, store: Any) -> None:
    """Nor does one that is named and not there."""
    named = make_progression(store, ["a", "a", "gone", "b", "a"])
    with store.begin() as tx:
        session = tx.conversations.sessions.create(progression_id=named)
        branch = tx.conversations.branches.create(session.id, progression_id=named)
    keep(store, a=[1.0, 0.0], b=[0.0, 1.0])
    for filters in ({"session_id": session.id}, {"branch_id": branch.id}):
        assert found(store, k=2, **filters) == ["a", "b"]


@pytest.fixture
def host(database_url: str) -> Iterator[Any]:
    engine = create_engine(database_url.replace("postgresql://", "postgresql+psycopg://", 1))
    yield engine
    engine.dispose()


@pytest.mark.parametrize("face", ["sync"])
@pytest.mark.parametrize("isolation", ["SERIALIZABLE", "AUTOCOMMIT"])
def test_a_callers_connection_is_searched_and_taught_nothing(way: str, store: Any, host: Any, isolation: str) -> None:
    """The async join runs the same verbs through SQLAlchemy's own bridge."""
    branch = make_branch(store)
    keep(store, branch.session_id, a=[1.0, 0.0], b=[0.0, 1.0])
    expected = search(store, NEAR, session_id=branch.session_id)
    with host.connect() as connection:
        vectors = store.join(connection.execution_options(isolation_level=isolation)).conversations.vectors
        assert vectors.backend() == ("python" if way == "python" else "numpy")
        assert [(one.id, distance) for one, distance in vectors.search(NEAR, session_id=branch.session_id)] == expected
