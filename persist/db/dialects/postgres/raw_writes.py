"""The triggers that note raw writes on Postgres. Their WHEN looks for the mark, so that persist's rows cost no function call."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from importlib import import_module
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Boolean, Column, ColumnElement, LargeBinary, Table, Text, cast, literal, literal_column
from sqlalchemy.types import UserDefinedType

from persist.db.dialects.bulk import next_size
from persist.db.dialects.raw_rows import Cell, Cells, Columns, Place, RawRows
from persist.db.schema import row_guards as rules
from persist.db.schema.column_types import Bool, FreeText, Json, Label
from persist.db.schema.instants import IsoMs, SqlSeconds
from persist.db.unreadable.cells import NotLoaded
from persist.db.values.escaping import quoted
from persist.db.values.json import from_jsonb

_SAFE = (FreeText, Bool, Label, Boolean)
_FORMS = ("DateStyle = 'ISO'", "TimeZone = 'UTC'", "extra_float_digits = 1", "bytea_output = 'hex'")
_YEARS = "'0001-01-01 00:00:00+00' AND {0} < '10000-01-01 00:00:00+00'"


class _Tid(UserDefinedType[str]):
    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "tid"


class PostgresRawRows(RawRows):
    """Raw rows on Postgres, whose column types exclude most unreadable values."""

    word = "postgresql"
    as_stored, inserting = "CAST({} AS TEXT)", "OVERRIDING SYSTEM VALUE "

    def __init__(self, driver: Any, schema: str, reading_cursor: Callable[[Any], Any]) -> None:
        super().__init__(driver)
        self._schema, self._reading_cursor = schema, reading_cursor

    def __enter__(self) -> Self:
        for form in _FORMS:
            self._driver.execute(f"SET LOCAL {form}", prepare=False)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Do nothing: SET LOCAL ends with the transaction."""

    def may_spoil(self, column: Column[Any]) -> bool:
        return not isinstance(column.type, _SAFE)

    def scan(self, table: Table, key: Sequence[str], columns: Columns) -> Iterator[tuple[Any, ...]]:
        listed = ", ".join([*(f"CAST({quoted(name)} AS TEXT)" for name in key), *map(_looked_at, columns)])
        texts = [len(key) + place for place, column in enumerate(columns) if isinstance(column.type, Json)]
        large = [len(key) + place for place, column in enumerate(columns) if isinstance(column.type, Json | LargeBinary)]
        size = 8
        with closing(self._reading_cursor(self._driver)) as cursor:
            cursor.execute(f"SELECT {listed} FROM {self._named(table)}")
            while found := cursor.fetchmany(size):
                for row in found:
                    yield _unescaped(row, texts)
                size = next_size(found, large, size)

    def values(self, table: Table, place: Place, columns: Columns) -> tuple[Any, ...] | None:
        where, values = self._at(table, place)
        listed = ", ".join(map(_looked_at, columns))
        row = self._driver.execute(f"SELECT {listed} FROM {self._named(table)} WHERE {where}", values).fetchone()
        return (
            None if row is None else _unescaped(row, [at for at, column in enumerate(columns) if isinstance(column.type, Json)])
        )

    def cell(self, value: Any) -> Cell:
        return None if value is None else {"literal": value}

    def names(self, table: Table) -> list[str]:
        query = (
            "SELECT attname FROM pg_catalog.pg_attribute WHERE attrelid = CAST(%s AS regclass) AND attnum > 0 "
            "AND NOT attisdropped AND attgenerated = '' ORDER BY attnum"
        )
        return [name for (name,) in self._driver.execute(query, [self._named(table)])]

    def find(self, table: Table, where: Cells) -> list[Place]:
        terms = [quoted(name) + (" IS NULL" if cell is None else " = %s") for name, cell in where.items()]
        values = [cell["literal"] for cell in where.values() if cell is not None]
        sql = f"SELECT CAST(ctid AS TEXT) FROM {self._named(table)} WHERE {' AND '.join(terms)} FOR UPDATE"
        return self._driver.execute(sql, values).fetchall()  # type: ignore[no-any-return]  # the driver's rows are tuples

    def at(self, table: Table, place: Place) -> ColumnElement[bool]:
        return literal_column("ctid") == cast(literal(place[0], Text()), _Tid())

    def _named(self, table: Table) -> str:
        return f"{quoted(self._schema)}.{quoted(table.name)}"

    def _at(self, table: Table, place: Place) -> tuple[str, list[Any]]:
        return "ctid = %s", list(place)  # the ctid is stable: the transaction that found the row holds its lock

    def _term(self, cell: Cell) -> tuple[str, list[Any]]:
        return ("NULL", []) if cell is None else ("%s", [cell["literal"]])


def _looked_at(column: Column[Any]) -> str:
    name = quoted(column.name)
    if isinstance(column.type, IsoMs | SqlSeconds):  # the driver has no datetime for years outside 1 to 9999
        return f"CASE WHEN {name} >= {_YEARS.format(name)} THEN NULL ELSE CAST({name} AS TEXT) END"
    return f"CAST({name} AS TEXT)" if isinstance(column.type, Json) else name


def _unescaped(row: tuple[Any, ...], texts: Sequence[int]) -> tuple[Any, ...]:
    if not texts:
        return row
    values = list(row)
    for at in texts:
        if values[at] is not None:
            values[at] = from_jsonb(values[at])
    return tuple(values)


class PostgresRereader:
    """See `persist.db.unreadable.cells.Rereader`. Reads instants that Python's datetime cannot represent, such as infinity."""

    typed = True

    def refused(self, error: BaseException) -> bool:
        """Whether the driver failed to convert a value: such an error has no SQLSTATE."""
        import psycopg

        return isinstance(error, psycopg.DataError) and error.sqlstate is None

    @contextmanager
    def lenient(self, driver: Any) -> Iterator[None]:
        adapters = driver.adapters
        before = {name: adapters.get_loader(adapters.types[name].oid, 0) for name in _loaders()}
        for name, loader in _loaders().items():
            adapters.register_loader(name, loader)
        try:
            yield
        finally:
            adapters = driver.adapters
            for name, loader in before.items():
                adapters.register_loader(name, loader)


@cache
def _loaders() -> dict[str, Any]:
    import psycopg

    datetimes: Any = import_module("psycopg.types.datetime")

    def lenient(kind: Any) -> Any:
        class Lenient(kind):  # type: ignore[misc]  # a class of a driver that may not be installed
            def load(self, data: Any) -> Any:
                try:
                    return super().load(data)
                except psycopg.DataError:
                    return NotLoaded(bytes(data).decode())

        return Lenient

    return {"timestamp": lenient(datetimes.TimestampLoader), "timestamptz": lenient(datetimes.TimestamptzLoader)}


REREADER = PostgresRereader()


UNMARKED = f"current_setting('{rules.SETTING}', true) IS DISTINCT FROM 'on'"
"""The condition that the writer is not persist."""
MARK = f"set_config('{rules.SETTING}', 'on', true)"
"""What marks a transaction, in the SELECT with which it begins."""
MARK_JOINED = f"SET LOCAL {rules.SETTING} = 'on'"
UNMARK_JOINED = f"SET LOCAL {rules.SETTING} = ''"
_NOTES = rules.LOGGED
OUTER_ROLE = "CASE current_setting('role') WHEN 'none' THEN session_user::text ELSE current_setting('role') END"
"""The role of the writer, which is not the current one in a function of the owner's."""
_NOTE = f"""
DECLARE home text; was jsonb; is_now jsonb; said jsonb; this jsonb; notes bigint; room bigint := {rules.MAX_NOTES}; moved boolean;
BEGIN
SELECT quote_ident(n.nspname) INTO home FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
JOIN pg_class c ON c.oid = t.tgrelid AND c.relnamespace = p.pronamespace AND p.proname = '{rules.PREFIX}_log_' || c.relname
JOIN pg_namespace n ON n.oid = p.pronamespace WHERE t.tgrelid = TG_RELID AND t.tgname = TG_NAME;
IF home IS NULL THEN
RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = '{_NOTES}: this function notes what is written to the tables of its schema';
END IF;
IF TG_OP IN ('UPDATE', 'DELETE') THEN was := to_jsonb(OLD); END IF;
IF TG_OP IN ('UPDATE', 'INSERT') THEN is_now := to_jsonb(NEW); END IF;
IF TG_OP = 'TRUNCATE' THEN room := {rules.MAX_EMPTIED}; ELSIF was IS NOT DISTINCT FROM is_now THEN RETURN NEW; END IF;
SELECT jsonb_object_agg(o.key, CASE WHEN length(o.value #>> '{{}}') > {rules.MAX_CHARACTERS}
THEN to_jsonb(left(o.value #>> '{{}}', {rules.MAX_CHARACTERS}) || ' ... (' || length(o.value #>> '{{}}') || ' characters)')
ELSE o.value END) INTO said FROM jsonb_each(was) AS o
WHERE CASE WHEN is_now IS NULL THEN o.value <> 'null' ELSE o.value IS DISTINCT FROM is_now -> o.key END;
FOREACH this IN ARRAY CASE WHEN TG_OP = 'TRUNCATE' THEN ARRAY['{{}}'::jsonb]
WHEN was ->> TG_ARGV[0] IS DISTINCT FROM is_now ->> TG_ARGV[0] THEN array_remove(ARRAY[was, is_now], NULL)
ELSE ARRAY[was] END LOOP
moved := TG_OP = 'UPDATE' AND this IS DISTINCT FROM was;
EXECUTE 'SELECT count(*) FROM (SELECT 1 FROM ' || home || '.{rules.LOGGED} WHERE run_id = $1
AND (operation = ''{rules.TRUNCATE}'') = $2 LIMIT $3) AS noted' INTO notes
USING coalesce(this ->> TG_ARGV[0], ''), TG_OP = 'TRUNCATE', room;
IF notes < room THEN
EXECUTE 'INSERT INTO ' || home || '.{rules.LOGGED}
(run_id, at, table_name, operation, row_key_json, before_json, writer_json) VALUES ($1, $2, $3, $4, $5, $6, $7)'
USING coalesce(this ->> TG_ARGV[0], ''), CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint), TG_TABLE_NAME,
CASE WHEN moved THEN '{rules.INSERT}' ELSE lower(TG_OP) END, (SELECT jsonb_object_agg(name, this -> name)
FROM unnest(string_to_array(TG_ARGV[1], ',')) AS name WHERE TG_OP <> 'TRUNCATE'), CASE WHEN NOT moved THEN said END,
jsonb_build_object('role', {OUTER_ROLE}, 'application', current_setting('application_name'), 'pid', pg_backend_pid(),
'address', host(inet_client_addr()));
END IF;
END LOOP;
RETURN NEW;
END
"""
"""Notes go to the schema of the function itself, whatever a trigger says: who attaches it to a table of his own is refused."""
_REFUSE = f"BEGIN RAISE EXCEPTION USING ERRCODE = '23514', CONSTRAINT = '{rules.LOGGED}', MESSAGE = '{rules.KEPT}'; END"
_BY_HAND = "pg_trigger_depth() = 0"
_FUNCTION = "RETURNS trigger LANGUAGE plpgsql"
# The writer needs no right to write notes: the function runs as its owner, and looks for names where nobody shadows them.
_DEFINER = "SECURITY DEFINER SET search_path = pg_catalog, pg_temp"


def raw_write_ddl(table: Table, within: str) -> list[str]:
    """The statements that create the function and the triggers of a table; none unless its model declares them."""
    if rules.LOGGED not in table.info:
        return []
    rule: rules.LoggedWrites | None = table.info[rules.LOGGED]
    name, function = f"{rules.PREFIX}_log_{table.name}", f"{within}{rules.PREFIX}_log_{table.name}"
    kept = f"{name} BEFORE UPDATE OR DELETE OR TRUNCATE ON {within}{table.name} FOR EACH STATEMENT WHEN ({UNMARKED})"
    if rule is None:
        made = f"{name}_made BEFORE INSERT ON {within}{table.name} FOR EACH STATEMENT WHEN ({UNMARKED} AND {_BY_HAND})"
        return [
            f"CREATE FUNCTION {function}() {_FUNCTION} AS $$ {_REFUSE} $$",
            f"CREATE TRIGGER {kept} EXECUTE FUNCTION {function}()",
            f"CREATE TRIGGER {made} EXECUTE FUNCTION {function}()",
        ]
    call = f"EXECUTE FUNCTION {function}('{rule.scope}', '{','.join(rule.keys[0])}')"
    return [
        f"CREATE FUNCTION {function}() {_FUNCTION} {_DEFINER} AS $$ {' '.join(_NOTE.split())} $$",
        f"REVOKE ALL ON FUNCTION {function}() FROM PUBLIC",
        f"CREATE TRIGGER {name}_rows AFTER INSERT OR UPDATE OR DELETE ON {within}{table.name} FOR EACH ROW"
        f" WHEN ({UNMARKED}) {call}",
        f"CREATE TRIGGER {name}_table BEFORE TRUNCATE ON {within}{table.name} FOR EACH STATEMENT WHEN ({UNMARKED}) {call}",
    ]
