"""Instants in columns: cut to what the column keeps, alike on both databases, whatever the session's zone."""

import collections.abc
import copy
import enum
import importlib
import pickle
import pkgutil
import types
import typing
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError
from sqlalchemy import Integer, bindparam, literal, select

import persist
from persist.db.schema.column_types import Bool
from persist.db.statements.prepared import Statement
from persist.db.values.escaping import join_halves
from persist.db.values.frozen import Value, construct
from persist.framework_state.checkpoints.schemas import Blob
from tests.cases import each
from tests.unit.json_values import LEAD, normal, same, texts, values
from tests.unit.laboratory import GET, INSTANTS, NAMES, Laboratory, Word, specimens

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45)), timezone(-timedelta(hours=11))])
instants = st.datetimes(datetime(1900, 1, 2), datetime(2199, 12, 30), timezones=ZONES)  # Hypothesis adds the zone


def cut(value: datetime, unit: timedelta) -> datetime:
    return EPOCH + (value - EPOCH) // unit * unit


@each("name", INSTANTS)
def test_instants_are_cut_to_their_column(laboratory: Laboratory, name: str) -> None:
    @given(instants)
    @example(datetime(2026, 1, 2, 3, 4, 5, 999_999, tzinfo=UTC))
    @example(datetime(2026, 1, 2, 3, 4, 5, 678_500, tzinfo=timezone(timedelta(hours=5, minutes=30))))
    @example(datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC))
    @example(EPOCH)
    @example(datetime(2107, 1, 1, microsecond=69, tzinfo=UTC))
    def check(value: datetime) -> None:
        backs = laboratory.round_trips(name, value)
        assert backs == [cut(value, INSTANTS[name])] * 6
        assert {back.tzinfo for back in backs} == {UTC}

    check()


@each("year", [1, 999, 1969, 9998])
def test_far_years(laboratory: Laboratory, year: int) -> None:
    value = datetime(year, 6, 7, 8, 9, 10, 123_000, tzinfo=UTC)
    assert laboratory.round_trips("iso", value) == [value] * 6
    assert laboratory.round_trips("ms", value) == [value] * 6


def test_instants_are_stored_in_their_published_form(laboratory: Laboratory, backend: str) -> None:
    value = datetime(2026, 1, 2, 8, 34, 5, 678_999, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    laboratory.put(1, prepared=True, **dict.fromkeys(INSTANTS, value))
    assert laboratory.stored("ms") == 1_767_323_045_678
    assert laboratory.stored("s") == 1_767_323_045
    assert laboratory.stored("real") == 1_767_323_045.678999
    iso = "to_char(iso AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')" if backend == "postgres" else "iso"
    assert laboratory.stored(iso) == ("2026-01-02T03:04:05.678000Z" if backend == "postgres" else "2026-01-02T03:04:05.678Z")


def test_instants_compare_in_the_database(laboratory: Laboratory) -> None:
    early = datetime(2026, 1, 2, 3, 4, 5, 1000, tzinfo=timezone(timedelta(hours=9)))
    late = datetime(2026, 1, 2, 3, 4, 5, 0, tzinfo=UTC)
    laboratory.put(1, prepared=False, **dict.fromkeys(INSTANTS, late))
    laboratory.put(2, prepared=False, **dict.fromkeys(INSTANTS, early))
    for name in INSTANTS:
        column = specimens.c[name]
        assert laboratory.connection.execute(select(specimens.c.id).order_by(column)).scalars().all() == [2, 1]
        assert laboratory.connection.execute(select(specimens.c.id).where(column < late)).scalars().all() == [2]


STRANGERS: list[Any] = [datetime(2026, 1, 1), "2026-01-01T00:00:00Z", 1_767_323_045]


@each("value", STRANGERS, ids=["naive", "text", "number"])
@each("prepared", [False, True], ids=["core", "prepared"])
def test_what_is_no_instant_is_refused(laboratory: Laboratory, value: Any, prepared: bool) -> None:
    for name in INSTANTS:
        assert laboratory.refusal(name, value, prepared=prepared).path == "instant"


# Column types on both databases: what goes in comes out, through Core and through prepared statements alike.


def test_any_json_comes_back(laboratory: Laboratory) -> None:
    @given(values)
    @example(0.0)
    @example("text")
    @example(True)
    @example("\ud800" + LEAD + "0000")
    @example({"a": [1, 1.0, 1e16, 1e23, 1e308, -0.0, 2**64 - 1, -(2**63)], "\x00": "\x00\ud83d", LEAD: LEAD + "0000"})
    def check(value: Any) -> None:
        assert [back for back in laboratory.round_trips("json", value) if not same(back, normal(value))] == []

    check()


def test_json_is_text_or_jsonb(laboratory: Laboratory, backend: str) -> None:
    laboratory.put(1, prepared=False, json={"a": [1, None]})
    kind = "jsonb_typeof(json)" if backend == "postgres" else "typeof(json)"
    assert laboratory.stored(kind) == ("object" if backend == "postgres" else "text")
    assert laboratory.stored("CAST(json AS TEXT)").replace(" ", "") == '{"a":[1,null]}'


def test_json_paths(laboratory: Laboratory) -> None:
    laboratory.put(1, prepared=False, json={"name": "Ann", "tags": ["x", "y"], "n": 7, "deep": {"er": [1, {"z": 2.5}]}})
    column = specimens.c.json
    found = laboratory.connection.execute(
        select(column["name"].as_string(), column["n"].as_integer(), column["tags"], column["deep", "er", 1, "z"].as_float())
    ).one()
    assert tuple(found) == ("Ann", 7, ["x", "y"], 2.5)
    query = select(specimens.c.id).where(column["name"].as_string() == "Ann")
    assert laboratory.connection.execute(query).scalars().all() == [1]


def test_no_json_is_null(laboratory: Laboratory) -> None:
    assert laboratory.round_trips("json", None) == [None] * 6
    assert laboratory.stored("json IS NULL")


@pytest.mark.parametrize("value", [float("nan"), 2**64, (1,), {1: 2}, b"x", datetime(2026, 1, 1, tzinfo=UTC), Word.ONE])
@pytest.mark.parametrize("prepared", [False, True], ids=["core", "prepared"])
def test_json_outside_the_domain_is_refused(laboratory: Laboratory, value: Any, prepared: bool) -> None:
    assert laboratory.refusal("json", {"a": [0, value]}, prepared=prepared).path == "value.a[1]"
    laboratory.put(4, prepared=prepared, json={"still": "usable"})


def test_any_body_comes_back(laboratory: Laboratory) -> None:
    @given(texts)
    @example("")
    @example("\x00")
    @example("\ud83d\ude00 \ud83d")
    @example(LEAD + "0000" + LEAD)
    def check(text: str) -> None:
        assert laboratory.round_trips("body", text) == [join_halves(text)] * 6

    check()


def test_ordinary_text_is_stored_verbatim(laboratory: Laboratory) -> None:
    text = "Grüße, 😀 and \\u0000"
    laboratory.put(1, prepared=True, body=text, label=text)
    assert (laboratory.stored("body"), laboratory.stored("label")) == (text, text)


@each("value", ["a\x00b", "\ud83d", "\ude00\ud83d"])
@each("prepared", [False, True], ids=["core", "prepared"])
def test_labels_refuse_what_databases_do_not_compare_alike(laboratory: Laboratory, value: str, prepared: bool) -> None:
    assert "identifier or filter" in laboratory.refusal("label", value, prepared=prepared).reason


def test_labels_sort_by_code_point(laboratory: Laboratory) -> None:
    words = ["Z", "a", "é", "z", "_", "😀", "\uffff", "ab", "aB", ""]
    for number, word in enumerate(words):
        laboratory.put(number, prepared=False, label=word)
    found = laboratory.connection.execute(select(specimens.c.label).order_by(specimens.c.label)).scalars().all()
    assert found == sorted(words)


def test_a_vocabulary_gives_members_and_keeps_words_it_does_not_know(laboratory: Laboratory) -> None:
    assert [type(back) for back in laboratory.round_trips("word", Word.TWO)] == [Word] * 6
    assert laboratory.round_trips("word", "one") == [Word.ONE] * 6
    later = laboratory.round_trips("word", "three")
    assert later == ["three"] * 6
    assert {type(back) for back in later} == {str}


@each("number", [0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)])
def test_whole_numbers(laboratory: Laboratory, number: int) -> None:
    backs = laboratory.round_trips("whole", number)
    assert backs == [number] * 6
    assert {type(back) for back in backs} == {int}


@each("number", [2**63, -(2**63) - 1, 10**30])
@each("prepared", [False, True], ids=["core", "prepared"])
def test_whole_numbers_over_64_bits_are_refused(laboratory: Laboratory, number: int, prepared: bool) -> None:
    laboratory.refusal("whole", number, prepared=prepared)


@each("number", [0.0, 0.1, 1 / 3, -2.5, 1e16, 1e308, 5e-324, 3.0])
def test_amounts(laboratory: Laboratory, number: float) -> None:
    backs = laboratory.round_trips("amount", number)
    assert backs == [number] * 6
    assert {type(back) for back in backs} == {float}


@each("flag", [True, False, None])
def test_flags(laboratory: Laboratory, flag: bool | None) -> None:
    assert all(back is flag for back in laboratory.round_trips("flag", flag))


def test_null_is_null_everywhere(laboratory: Laboratory) -> None:
    laboratory.put(1, prepared=True)
    laboratory.put(2, prepared=False)
    for id in (1, 2):
        assert [laboratory.back(name, id) for name in NAMES] == [[None] * 3] * len(NAMES)


def test_no_row_is_none(laboratory: Laboratory) -> None:
    assert laboratory.prepared[GET].one(laboratory.driver, {"row_id": 404}) is None
    assert laboratory.prepared[GET].all(laboratory.driver, {"row_id": 404}) == []


def test_constants_of_a_hot_statement_are_encoded_too(laboratory: Laboratory) -> None:
    laboratory.put(1, prepared=True, word=Word.TWO, flag=True, body="\x00")
    query = Statement(select(specimens.c.id).where(specimens.c.word == Word.TWO, specimens.c.flag == literal(True, Bool())))
    assert laboratory.prepared[query].all(laboratory.driver, {}) == [(1,)]
    query = Statement(select(specimens.c.id).where(specimens.c.body == "\x00", specimens.c.id == bindparam("row_id")))
    assert laboratory.prepared[query].one(laboratory.driver, {"row_id": 1}) == (1,)


def test_types_can_be_cached() -> None:
    """SQLAlchemy reads cache_ok from each class itself; one that lacks it makes every statement compile anew."""
    for column in specimens.columns:
        for kind in (type(column.type), type(column.type.with_variant(Integer(), "none"))):
            assert getattr(kind, "cache_ok", True) is not None
    assert select(specimens)._generate_cache_key() is not None


# Values built from rows equal those that the validating constructor makes.


SAMPLES: dict[Any, list[Any]] = {
    str: ["text", ""],
    int: [7, -(2**63)],
    float: [0.25, 0.0],
    bool: [True, False],
    bytes: [b"\x00\xff"],
    datetime: [datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)],
    timedelta: [timedelta(seconds=1.5)],
    Any: [{"a": [1, None]}, None, 3],
    Blob: [Blob("msgpack", b"\x00\xff")],
}


def _value_classes() -> list[type[Value]]:
    for module in pkgutil.walk_packages(persist.__path__, "persist."):
        if module.name.endswith((".schemas", "_values")):
            importlib.import_module(module.name)
    return list(_below(Value))


def _below(base: type[Value]) -> Iterator[type[Value]]:
    for child in base.__subclasses__():
        if child.__module__.startswith("persist."):
            yield child
        yield from _below(child)


def samples(annotation: Any) -> list[Any]:
    """A few values of a type."""
    if annotation in SAMPLES:
        return SAMPLES[annotation]
    if annotation is type(None):
        return [None]
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        return [sample for one in inner for sample in samples(one)]
    if origin is list:
        return [[], samples(inner[0])]
    if origin is tuple:
        return [(), tuple(samples(inner[0]))]
    if origin is collections.abc.Sequence:
        return [samples(inner[0])]
    if origin is dict:
        return [{}, {"key": samples(inner[1])[0]}]
    if origin is typing.Literal:
        return list(inner)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return list(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Value):
        return [annotation(**fields) for fields in rows(annotation)]
    raise AssertionError(f"no samples of {annotation}: add some to this test")


def rows(model: type[Value]) -> list[dict[str, Any]]:
    """Fields for a few values of a class, every sample of every field in one of them."""
    columns = {name: samples(field.annotation) for name, field in model.model_fields.items()}
    maximum = max(map(len, columns.values()))
    return [{name: column[number % len(column)] for name, column in columns.items()} for number in range(maximum)]


MODELS = _value_classes()


def test_there_are_values() -> None:
    assert {"ChatSession", "ChatMessage", "StepUsage"} <= {model.__name__ for model in MODELS}


@each("model", MODELS, ids=lambda model: str(model.__name__))
def test_a_built_value_equals_a_validated_one(model: type[Value]) -> None:
    for fields in rows(model):
        built, validated = construct(model, fields), model(**fields)
        assert built == validated
        assert validated == built
        assert type(built) is model
        assert repr(built) == repr(validated)
        assert built.model_dump() == validated.model_dump()
        assert built.model_dump_json() == validated.model_dump_json()
        assert built.model_fields_set == validated.model_fields_set
        assert built.model_extra == validated.model_extra
        assert built.__dict__.keys() == validated.__dict__.keys()
        assert [type(value) for value in built.__dict__.values()] == [type(value) for value in validated.__dict__.values()]


@each("model", MODELS, ids=lambda model: str(model.__name__))
def test_a_built_value_lives_like_a_validated_one(model: type[Value]) -> None:
    fields = rows(model)[0]
    built = construct(model, fields)
    assert copy.deepcopy(built) == built
    assert pickle.loads(pickle.dumps(built)) == built
    assert built.model_copy() == built
    assert model.model_validate(built.model_dump()) == built
    name = next(iter(fields))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(built, name, fields[name])


@each("model", MODELS, ids=lambda model: str(model.__name__))
def test_a_built_value_keeps_a_row_of_its_own(model: type[Value]) -> None:
    fields = rows(model)[0]
    built = construct(model, fields)
    fields.clear()
    assert built == model(**rows(model)[0])


@each("model", MODELS, ids=lambda model: str(model.__name__))
def test_a_field_too_many_is_refused_when_validating(model: type[Value]) -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        model(**rows(model)[0] | {"surprise": 1})


# The checks that verbs of every domain share: each gives the value back, or names what was wrong with it.
