"""The SQL after which the planner of Postgres knows nothing of the texts in tables under row security.

Row security hides rows, not what ANALYZE has collected of them: comparisons of texts count as harmless, so that the planner
estimates them by the values of all rows, and EXPLAIN tells everybody the estimate. By bisection that gives away whole values.
"""

from collections.abc import Sequence

from persist.db.dialects.quoting import body, literal

_CLEAR = "pg_catalog.pg_clear_attribute_stats(text,text,text,boolean)"
"""The function of Postgres 18 with which the owner of a table deletes what is known of a column."""
_TYPES = ("text", "jsonb", "name", "bytea")
_LEFT = "a superuser has to run this script, or what ANALYZE collected before stays, and EXPLAIN gives it away"


def unmeasured(schema: str, tables: Sequence[str]) -> str:
    """The statement that keeps ANALYZE from the texts and JSON of these tables and the expressions of their indexes.

    It deletes what ANALYZE has collected: on Postgres 18 for the owner of the tables, before that for superusers alone. Others
    are warned.
    """
    listed = ", ".join(literal(table) for table in tables)
    types = ", ".join(f"'{one}'::regtype" for one in _TYPES)
    measured = (
        "SELECT c.oid, c.relname, c.relkind, a.attname, a.attnum, a.attstattarget FROM pg_catalog.pg_class t"
        " JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace"
        " JOIN pg_catalog.pg_class c ON c.oid = t.oid"
        " OR c.oid IN (SELECT indexrelid FROM pg_catalog.pg_index WHERE indrelid = t.oid)"
        " JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
        " LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid"
        f" WHERE n.nspname = {literal(schema)} AND t.relname IN ({listed})"
        f" AND CASE WHEN c.oid = t.oid THEN a.atttypid IN ({types}) ELSE i.indkey[a.attnum - 1] = 0 END"
    )
    clear = f"to_regprocedure('{_CLEAR}') IS NOT NULL"
    forget = (
        "DECLARE one record; BEGIN"
        f" FOR one IN {measured} LOOP"
        " IF one.attstattarget IS DISTINCT FROM 0 THEN"
        " IF one.relkind = 'i' THEN"
        f" EXECUTE format('ALTER INDEX %I.%I ALTER COLUMN %s SET STATISTICS 0', {literal(schema)}, one.relname, one.attnum);"
        " ELSE EXECUTE"
        f" format('ALTER TABLE %I.%I ALTER COLUMN %I SET STATISTICS 0', {literal(schema)}, one.relname, one.attname);"
        " END IF; END IF;"
        f" IF {clear} THEN EXECUTE 'SELECT pg_catalog.pg_clear_attribute_stats($1, $2, $3, false)'"
        f" USING {literal(schema)}, one.relname::text, one.attname::text;"
        " ELSIF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN"
        " DELETE FROM pg_catalog.pg_statistic WHERE starelid = one.oid AND staattnum = one.attnum;"
        " END IF; END LOOP;"
        f" IF NOT ({clear}) AND NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user)"
        f" THEN RAISE WARNING '{_LEFT}'; END IF; END"
    )
    return f"DO {body(forget)};"
