"""`maintenance.erd`: Mermaid that its grammar takes, and that says what the models say."""

import re

from sqlalchemy import Column, ForeignKey, Integer, MetaData, Table

from persist.maintenance import erd
from persist.schema.metadata import metadata

_ENTITY = r'(?:[A-Za-z][A-Za-z0-9_]*|"[^"\n]+")'
_OPEN = re.compile(rf"    ({_ENTITY}) \{{")
_COLUMN = re.compile(r"        ([a-z]+) ([A-Za-z_][A-Za-z0-9_]*)(?: ((?:PK|FK|UK)(?:, (?:PK|FK|UK))*))?")
_RELATION = re.compile(rf'    ({_ENTITY}) (\|\||\|o)--(o\||o\{{) ({_ENTITY}) : "([a-z0-9_, ]+)"')

Entities = dict[str, dict[str, tuple[str, str | None]]]


def parsed(text: str) -> tuple[Entities, list[tuple[str, ...]]]:
    """The entities and relations of a diagram; AssertionError for a line that is none."""
    lines = text.split("\n")
    assert lines[0] == "erDiagram"
    assert lines[-1] == ""
    entities: Entities = {}
    relations: list[tuple[str, ...]] = []
    name: str | None = None
    for line in lines[1:-1]:
        if name is not None and line == "    }":
            name = None
        elif name is not None:
            column = _COLUMN.fullmatch(line)
            assert column, line
            assert column[2] not in entities[name], line
            entities[name][column[2]] = (column[1], column[3])
        elif opening := _OPEN.fullmatch(line):
            assert not relations, line
            name = opening[1].strip('"')
            assert name not in entities, line
            entities[name] = {}
        else:
            relation = _RELATION.fullmatch(line)
            assert relation, line
            relations.append(tuple(relation[group].strip('"') for group in (1, 2, 3, 4, 5)))
    assert name is None
    assert all({relation[0], relation[3]} <= set(entities) for relation in relations)
    return entities, relations


def test_every_table_and_column_is_there() -> None:
    entities, _ = parsed(erd())
    assert {name: set(columns) for name, columns in entities.items()} == {
        table.name: {column.name for column in table.columns} for table in metadata.sorted_tables
    }


def test_keys_and_types_are_marked() -> None:
    entities, _ = parsed(erd())
    assert entities["chat_part_deltas"] == {
        "part_id": ("label", "PK, FK"),
        "seq": ("bigint", "PK"),
        "created_at": ("epochms", None),
        "delta": ("freetext", None),
    }
    assert entities["messages"]["embedding"] == ("bytes", None)
    assert entities["workflow_runs"]["status"] == ("enumtext", None)
    assert entities["chat_sessions"]["cost_usd"] == ("double", None)


def test_relations_say_who_refers_to_whom_and_how_often() -> None:
    _, relations = parsed(erd())
    assert ("chat_sessions", "||", "o{", "chat_messages", "session_id") in relations
    assert ("chat_sessions", "||", "o|", "chat_turns", "session_id") in relations
    assert ("messages", "|o", "o{", "sessions", "first_msg_id") in relations
    assert ("messages", "|o", "o{", "sessions", "last_msg_id") in relations


def test_a_key_that_the_databases_spell_differently_is_one_relation() -> None:
    _, relations = parsed(erd())
    assert [relation for relation in relations if relation[0] == relation[3] == "execution"] == [
        ("execution", "|o", "o{", "execution", "run_id, parent_id")
    ]


def test_tables_of_others() -> None:
    theirs = MetaData()
    Table("order lines", theirs, Column("id", Integer, primary_key=True), Column("of", ForeignKey("orders.id"), nullable=False))
    Table("orders", theirs, Column("id", Integer, primary_key=True))
    entities, relations = parsed(erd(theirs))
    assert set(entities) == {"order lines", "orders"}
    assert relations == [("orders", "||", "o{", "order lines", "of")]
