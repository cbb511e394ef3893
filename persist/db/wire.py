"""The text of a Json column as it goes over a wire: plain JSON, not parsed."""

from typing import Any

from sqlalchemy import Dialect, Text, cast, type_coerce
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.types import TypeDecorator

from persist.db.escape import unescape_json
from persist.db.types import Processor


class _WireText(TypeDecorator[str]):
    impl = Text
    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor | None:
        return unescape_json if dialect.name == "postgresql" else None


def wire_text(column: ColumnElement[Any]) -> ColumnElement[str]:
    """What to select for it."""
    return type_coerce(cast(column, Text), _WireText())
