"""Validation of the values given to verbs, with the store's limits and clock."""

from datetime import datetime
from typing import Any

from persist.db.transactions.runtime import Runtime
from persist.db.values.arguments import check_body, check_label
from persist.db.values.json import Json, JsonText, check_object, encode
from persist.errors import InvalidValue


class Validation:
    """The part of a unit of work that touches no database."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def json(self, path: str, value: Json) -> JsonText:
        """The checked JSON text of a value."""
        return encode(value, path, self.runtime.limits)

    def json_object(self, path: str, value: Json) -> dict[str, Any]:
        """A checked JSON object; None becomes the empty object."""
        return check_object(value, path, self.runtime.limits)

    def now(self) -> datetime:
        """The store's current time, truncated to the milliseconds that columns keep."""
        return self.runtime.now()

    def label(self, path: str, value: object, *, empty: bool = False) -> str:
        """A checked identifier or filter."""
        text = check_label(path, value)
        if not text and not empty:
            raise InvalidValue(path, "it is empty.")
        return text

    def body(self, path: str, value: object) -> str:
        """Checked text of any content."""
        return check_body(path, value, self.runtime.settings.max_text_bytes)

    def to_plain_json(self, text: str) -> str:
        """Plain JSON text for the stored text of a Json column."""
        return self.runtime.dialect.to_plain_json(text)
