"""Tables as an SVG picture: boxes in columns, those that others refer to on the left, and a curve for each reference.

The picture is text in the colours of the page: no script draws it, and a search finds its columns.
"""

from collections.abc import Sequence
from html import escape
from itertools import groupby

from sqlalchemy import ForeignKeyConstraint, Table
from sqlalchemy.types import TypeDecorator

_ROW, _LETTER, _GAP, _SPACE = 17, 7.3, 70, 24
_MARGIN = 12


def drawing(tables: Sequence[Table]) -> str:
    """An `<svg>` of the tables, and of the references between them."""
    depths = {table: _depth(table, set(tables), frozenset()) for table in tables}
    places: dict[Table, tuple[float, float, float]] = {}
    x, height = float(_MARGIN), 0.0
    linked = {end for table in tables for key in _keys(table) for end in (table, key.referred_table)}
    ordered = sorted(tables, key=lambda table: (depths[table], table not in linked, table.name))
    for _, column in groupby(ordered, key=depths.__getitem__):
        stacked, y = list(column), float(_MARGIN)
        width = max(_width(table) for table in stacked)
        for table in stacked:
            places[table] = x, y, width
            y += _ROW * (len(table.columns) + 1) + _SPACE
        x, height = x + width + _GAP, max(height, y)
    boxes = "".join(_box(table, *places[table]) for table in ordered)
    curves = "".join(_curve(key, places) for table in ordered for key in _keys(table) if key.referred_table in places)
    size = f'viewBox="0 0 {x:.0f} {height:.0f}" width="{x:.0f}" height="{height:.0f}"'
    style = 'font-family="monospace" font-size="12" fill="currentColor" stroke-width="1"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} {style}>{curves}{boxes}</svg>'


def _keys(table: Table) -> list[ForeignKeyConstraint]:
    return sorted(table.foreign_key_constraints, key=lambda key: tuple(key.column_keys))


def _depth(table: Table, drawn: set[Table], above: frozenset[Table]) -> int:
    """How many tables a chain of references leads through; one that leads back into itself ends there."""
    parents = {key.referred_table for key in table.foreign_key_constraints} & drawn - above - {table}
    return max((1 + _depth(parent, drawn, above | {table}) for parent in parents), default=0)


def _words(table: Table) -> list[tuple[str, str]]:
    return [(column.name, _type(column.type) + (" ?" if column.nullable else "")) for column in table.columns]


def _type(kind: object) -> str:
    return type(kind).__name__ if isinstance(kind, TypeDecorator) else type(kind).__name__.lower()


def _width(table: Table) -> float:
    longest = max(len(name) + len(kind) + 4 for name, kind in _words(table))
    return max(longest, len(table.name) + 2) * _LETTER


def _box(table: Table, x: float, y: float, width: float) -> str:
    height = _ROW * (len(table.columns) + 1)
    frame = f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height}" rx="4" fill="none" stroke="currentColor"/>'
    head = f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{_ROW}" rx="4" fill="currentColor" fill-opacity="0.12"/>'
    lines = [f'<text x="{x + 7:.0f}" y="{y + 13:.0f}" font-weight="bold">{escape(table.name)}</text>']
    for number, ((name, kind), column) in enumerate(zip(_words(table), table.columns, strict=True), start=1):
        down = y + _ROW * number + 13
        weight = ' text-decoration="underline"' if column.primary_key else ""
        lines.append(f'<text x="{x + 7:.0f}" y="{down:.0f}"{weight}>{escape(name)}</text>')
        end = f'x="{x + width - 7:.0f}" y="{down:.0f}" text-anchor="end" fill-opacity="0.6"'
        lines.append(f"<text {end}>{escape(kind)}</text>")
    return frame + head + "".join(lines)


def _curve(key: ForeignKeyConstraint, places: dict[Table, tuple[float, float, float]]) -> str:
    """From the referring column to the head of the table that it refers to."""
    table, referred = key.table, key.referred_table
    x, y, width = places[table]
    other_x, other_y, other_width = places[referred]
    first = list(table.columns).index(next(iter(key.columns)))
    begin, end = y + _ROW * (first + 1.5), other_y + _ROW / 2
    if other_x < x:
        start, stop = x, other_x + other_width
        bend = max(20.0, (start - stop) / 2)
        path = f"M{start:.0f} {begin:.0f}C{start - bend:.0f} {begin:.0f} {stop + bend:.0f} {end:.0f} {stop:.0f} {end:.0f}"
        tip = f"M{stop + 7:.0f} {end - 4:.0f}L{stop:.0f} {end:.0f}L{stop + 7:.0f} {end + 4:.0f}"
    else:
        side = x + width
        path = f"M{side:.0f} {begin:.0f}C{side + 30:.0f} {begin:.0f} {side + 30:.0f} {end:.0f} {side:.0f} {end:.0f}"
        tip = f"M{side + 7:.0f} {end - 4:.0f}L{side:.0f} {end:.0f}L{side + 7:.0f} {end + 4:.0f}"
    return f'<path d="{path}{tip}" fill="none" stroke="currentColor" stroke-opacity="0.45"/>'
