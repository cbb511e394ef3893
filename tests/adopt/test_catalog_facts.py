"""Comparing what files say about their tables: statements of other programs are taken apart without being misread."""

import sqlite3
from contextlib import closing

from hypothesis import given
from hypothesis import strategies as st

from persist.db.dialects.sqlite.foreign_files import without_unique
from persist.db.dialects.sqlite.parsed_ddl import catalog_of_statements, plain, split_at_commas

DEFINITIONS = (
    "a TEXT",
    "b TEXT DEFAULT 'x, UNIQUE(a, b)'",
    '"c, (d" INTEGER CHECK ("c, (d" IN (1, 2))',
    "e TEXT -- a comment, with ( and '\n",
    "f TEXT /* UNIQUE(a, b), */ DEFAULT ')'",
    "[g] REAL",
)
UNIQUES = ("UNIQUE(a, b)", 'CONSTRAINT one UNIQUE (b, "a") ON CONFLICT IGNORE', "-- note\n unique(\n a, [b] )")


@given(st.permutations(DEFINITIONS), st.sampled_from(UNIQUES), st.integers(0, 6))
def test_only_the_unique_goes(columns: list[str], unique: str, place: int) -> None:
    parts = [*columns, "UNIQUE (a, e)", unique] if place > 3 else [*columns, unique, "UNIQUE (a, e)"]
    table = catalog_of_statements([without_unique(f"CREATE TABLE IF NOT EXISTS t ({', '.join(parts)})", "t", ["a", "b"])]).tables[
        "t"
    ]
    assert set(table.columns) == {"a", "b", "c, (d", "e", "f", "g"}
    assert [index.terms for index in table.indexes] == [("a", "e")]
    assert table.columns["b"].default == "'x, UNIQUE(a, b)'"


def test_indexes_are_compared_by_what_they_do() -> None:
    made = catalog_of_statements(
        [
            "CREATE TABLE t (a TEXT, b INTEGER, PRIMARY KEY (b, a))",
            "CREATE INDEX one ON t(a, b DESC)",
            'CREATE INDEX "two" ON "t" ( "a" ASC,[b]  desc )',
            "CREATE INDEX three ON t(a, b)",
            "CREATE UNIQUE INDEX four ON t(a, b DESC)",
            "CREATE INDEX five ON t(a, b DESC) WHERE a = 'x'",
            "CREATE INDEX six ON t(coalesce(a, ''))",
        ]
    ).tables["t"]
    indexes = {index.name: index for index in made.indexes}
    same = {name for name, index in indexes.items() if index.serves_as(indexes["one"])}
    assert same == {"one", "two"}
    assert indexes["six"].terms == ("coalesce(a,'')",)
    assert indexes["five"].where == "a='x'"
    assert made.key == ("b", "a")


def test_defaults_that_a_table_with_rows_may_be_given() -> None:
    columns = "a DEFAULT (datetime('now')), b DEFAULT CURRENT_TIMESTAMP, c DEFAULT 'it''s', d DEFAULT -1.5, e DEFAULT NULL, f"
    made = catalog_of_statements([f"CREATE TABLE t ({columns})"]).tables["t"].columns
    constant = {name: column.constant_default for name, column in made.items()}
    assert constant == {"a": None, "b": None, "c": "'it''s'", "d": "-1.5", "e": "NULL", "f": None}


def test_plain_words() -> None:
    assert plain(' "A"  =  1 ') == plain("a=1")
    assert split_at_commas("a, f(b, c), 'd,e', \"g,h\" /* , */") == ["a", " f(b, c)", " 'd,e'", ' "g,h" /* , */']


def test_a_parent_and_its_rule_are_known() -> None:
    with closing(sqlite3.connect(":memory:")):
        made = catalog_of_statements(
            [
                "CREATE TABLE p (id TEXT PRIMARY KEY)",
                "CREATE TABLE c (a TEXT REFERENCES p(id) ON DELETE CASCADE, b TEXT REFERENCES p(id))",
            ]
        )
    assert made.tables["c"].columns["a"].parent == '"p"("id") ON DELETE CASCADE'
    assert made.tables["c"].columns["b"].parent == '"p"("id")'
