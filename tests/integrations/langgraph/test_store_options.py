"""The options of LangGraph's own stores: PersistStore does what one asks for, or refuses it with a sentence."""

from collections.abc import Callable
from typing import Any

import pytest

from persist.errors import InvalidValue
from persist.integrations.langgraph import PersistSaver, PersistStore

Call = Callable[..., Any]


def embed(texts: list[str]) -> list[list[float]]:
    """The vector that each text spells."""
    return [[float(number) for number in text.split()] for text in texts]


async def aembed(texts: list[str]) -> list[list[float]]:
    return embed(texts)


def index(face: str, **options: Any) -> Any:
    return {"dims": 2, "embed": embed if face == "sync" else aembed, "fields": ["at"], **options}


@pytest.mark.parametrize(
    ("distance_type", "expected"),
    [
        (None, [("far", 1.0), ("near", pytest.approx(0.9701425)), ("behind", -1.0)]),
        ("cosine", [("far", 1.0), ("near", pytest.approx(0.9701425)), ("behind", -1.0)]),
        ("inner_product", [("far", 10.0), ("near", 4.0), ("behind", -1.0)]),
        ("l2", [("near", -1.0), ("behind", -5.0), ("far", -6.0)]),
    ],
)
def test_the_nearest_by_the_named_distance_come_first(
    call: Call, store: Any, face: str, distance_type: str | None, expected: Any
) -> None:
    options = {} if distance_type is None else {"distance_type": distance_type}
    items = PersistStore(store, index=index(face, **options))
    for key, at in (("far", "10 0"), ("near", "4 1"), ("behind", "-1 0")):
        call(items.put, ("docs",), key, {"at": at})
    scale = {"inner_product": "1 0", "l2": "4 0"}.get(distance_type or "", "1 0")
    assert [(one.key, one.score) for one in call(items.search, ("docs",), query=scale)] == expected


@pytest.mark.parametrize(
    "named",
    [{"fields": "at"}, {"fields": None, "text_fields": ["at"]}, {"fields": [], "text_fields": "at"}, {"text_fields": ["at"]}],
    ids=str,
)
def test_fields_have_the_names_of_every_store_of_the_framework(call: Call, store: Any, face: str, named: Any) -> None:
    items = PersistStore(store, index=index(face, ann_index_config={"kind": "flat", "vector_type": "vector"}, **named))
    call(items.put, ("docs",), "k", {"at": "1 0", "text": "not numbers"})
    assert [one.score for one in call(items.search, ("docs",), query="1 0")] == [1.0]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"distance_type": "hamming"}, "distance_type"),
    ({"distance_type": []}, "distance_type"),
    ({"ann_index_config": {"kind": "hnsw", "vector_type": "vector"}}, "hnsw"),
    ({"ann_index_config": {"kind": "ivfflat"}}, "ivfflat"),
    ({"ann_index_config": {"vector_type": "halfvec"}}, "halfvec"),
    ({"ann_index_config": {"kind": "flat", "m": 16}}, "m"),
    ({"ann_index_config": "hnsw"}, "dict"),
    ({"fields": ["at"], "text_fields": ["text"]}, "text_fields"),
    ({"fields": [1]}, "fields"),
    ({"fields": 5}, "fields"),
    ({"dims": 0}, "dims"),
    ({"dims": "2"}, "dims"),
    ({"feilds": ["at"]}, "feilds"),
]


@pytest.mark.parametrize(("options", "word"), REFUSED, ids=[str(options) for options, _ in REFUSED])
def test_an_index_that_asks_for_more_is_refused(store: Any, face: str, options: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidValue, match=word):
        PersistStore(store, index=index(face, **options))


TTLS: list[tuple[Any, str]] = [
    ({"default_tll": 5}, "default_tll"),
    ({"default_ttl": "5"}, "default_ttl"),
    ({"default_ttl": 0}, "default_ttl"),
    ({"default_ttl": True}, "default_ttl"),
    ({"default_ttl": float("nan")}, "default_ttl"),
    ({"omit_expired": False}, "omit_expired"),
    ({"sweep_interval_minutes": 5}, "sweep_ttl"),
    ([("default_ttl", 5)], "dict"),
]


@pytest.mark.parametrize(("ttl", "word"), TTLS, ids=[str(ttl) for ttl, _ in TTLS])
def test_an_expiry_that_asks_for_more_is_refused(store: Any, ttl: Any, word: str) -> None:
    with pytest.raises(InvalidValue, match=word):
        PersistStore(store, ttl=ttl)


def test_the_options_that_are_done_are_taken(store: Any) -> None:
    ttl: Any = {"refresh_on_read": False, "omit_expired": True, "default_ttl": 0.5, "sweep_interval_minutes": None}
    assert PersistStore(store, ttl=ttl).ttl_config == ttl


def test_what_the_framework_s_own_classes_are_made_from_is_refused() -> None:
    wrong: Any
    for wrong in ("sqlite:///x.db", None, object()):
        for kind in (PersistStore, PersistSaver):
            with pytest.raises(InvalidValue, match="expected a Store or an AsyncStore"):
                kind(wrong)
