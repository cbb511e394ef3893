"""What stored text may hold that would run, fetch, lie or break a page, and how another program puts it into every column."""

import json
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Column, String, Table, create_engine, make_url, text
from sqlalchemy.exc import DBAPIError

from persist.db.schema.column_types import EnumText, Json, Label
from persist.schema.metadata import metadata

PAYLOADS = (
    "<script>window.hacked = 1</script>",
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    '<img src="http://127.0.0.1:9/pixel.png">',
    "<svg onload='window.hacked = 1'></svg>",
    "<svg><script>window.hacked = 1</script></svg>",
    "<svg><foreignObject><iframe src='javascript:window.hacked = 1'></iframe></foreignObject></svg>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=window.hacked=1>",
    "<iframe src='http://127.0.0.1:9/'></iframe>",
    "<iframe srcdoc='<script>parent.hacked = 1</script>'></iframe>",
    "<object data='data:text/html,<script>window.hacked = 1</script>'></object>",
    "<embed src='http://127.0.0.1:9/x'>",
    "<link rel=stylesheet href='http://127.0.0.1:9/x.css'>",
    "<style>@import 'http://127.0.0.1:9/y.css'; * { display: none }</style>",
    "<base href='http://127.0.0.1:9/'>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>",
    "<form action='http://127.0.0.1:9/'><input name=token></form>",
    "<a href='javascript:window.hacked = 1' autofocus onfocus='window.hacked = 1'>go</a>",
    "<details open ontoggle='window.hacked = 1'>x</details>",
    "<video><source onerror='window.hacked = 1'></video>",
    "<body onload='window.hacked = 1'>",
    "<input onfocus='window.hacked = 1' autofocus>",
    '" onmouseover="window.hacked = 1" x="',
    "' onmouseover='window.hacked = 1' x='",
    "</textarea></title></main><h1>not ours</h1>",
    "[go](javascript:window.hacked=1)",
    "[go](data:text/html,<script>window.hacked=1</script>)",
    "![x](http://127.0.0.1:9/markdown.png)",
    "![x](javascript:window.hacked=1)",
    "<http://127.0.0.1:9/><script>window.hacked=1</script>",
    '[x]: http://127.0.0.1:9/ "\'onmouseover=window.hacked=1"\n[x]',
    "```html\n<script>window.hacked = 1</script>\n```",
    "| a | <img src=x onerror=window.hacked=1> |\n|---|---|\n| b | c |",
    "{{ 7 * 191 }}{% raw %}${ 7 * 191 }#{ 7 * 191 }<%= 7 * 191 %>",
    "{{ ''.__class__.__mro__ }}{{ self._TemplateReference__context }}",
    "\x1b[2J\x1b]0;title\x07\x9b31m",
    "safe\u202e gpj.exe\u2066 isolated",
    "/../../%2e%2e/?format=json#%00<script>",
    "; background: url(http://127.0.0.1:9/css.png); x: expression(window.hacked=1)",
    "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' onload='window.hacked=1'/>",
)
"""Forty; the address 127.0.0.1:9 stands for another site, which no page may ask."""


def is_text(column: Column[Any]) -> bool:
    """Whether a column holds text that any program may have chosen: no key of another row, and no word of a fixed list."""
    free = isinstance(column.type, Label | Json | String) and not isinstance(column.type, EnumText)
    return free and not column.primary_key and not column.foreign_keys


def text_columns() -> Iterator[tuple[Table, Column[Any]]]:
    """Every such column of every table."""
    for table in (one for one in metadata.sorted_tables if one.name != "_meta"):  # which says whether it is a store at all
        for column in table.columns:
            if is_text(column):
                yield table, column


def spoil(url: str) -> list[str]:
    """Put a payload into every text column of every row; the columns that took one. Rows get different ones."""
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg") if url.startswith("postgres") else url)
    took = []
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if engine.dialect.name == "sqlite":
            connection.execute(text("PRAGMA ignore_check_constraints = ON"))
            for (name,) in connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).all():
                connection.execute(text(f'DROP TRIGGER "{name}"'))
        else:
            connection.execute(text("SET session_replication_role = replica"))
            connection.execute(text('SET search_path = "persist"'))
        for place, (table, column) in enumerate(text_columns()):
            keys = [key.name for key in table.primary_key]
            rows = connection.execute(text(f"SELECT {', '.join(keys) or '1'} FROM {table.name} ORDER BY 1 LIMIT 200")).all()
            changed = 0
            for number, row in enumerate(rows if keys else rows[:1]):  # a table without a key has one payload for all its rows
                payload = PAYLOADS[(place + number) % len(PAYLOADS)]
                value = json.dumps(_json(column, payload)) if isinstance(column.type, Json) else f"{payload}{number or ''}"
                given = {f"k{at}": part for at, part in enumerate(row) if keys} | {"value": value}
                cast = "CAST(:value AS jsonb)" if isinstance(column.type, Json) and engine.dialect.name != "sqlite" else ":value"
                where = " AND ".join(f"{key} = :k{at}" for at, key in enumerate(keys)) or "1 = 1"
                try:
                    connection.execute(text(f"UPDATE {table.name} SET {column.name} = {cast} WHERE {where}"), given)
                except DBAPIError:  # the database refuses it: then no page meets it
                    continue
                changed += 1
            if changed:
                took.append(f"{table.name}.{column.name}")
    engine.dispose()
    return took


def _json(column: Column[Any], payload: str) -> Any:
    if "history" in column.name or column.name.endswith("s_json"):
        return [{"phase": payload, "timestamp": payload, payload: payload}, payload]
    return {payload: [payload, {"title": payload, "text": payload, "url": payload}], "title": payload}
