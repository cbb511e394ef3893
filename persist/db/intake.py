"""What a unit of work asks of the values it is given: checked, in the store's limits, by the store's clock."""

from datetime import datetime
from typing import Any

from persist.db.checks import check_body
from persist.db.json import Json, JsonText, check_object, encode
from persist.db.runtime import Runtime
from persist.db.types import check_label
from persist.errors import InvalidValue


class Intake:
    """The part of a unit of work that touches no database."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def json(self, path: str, value: Json) -> JsonText:
        """The checked JSON text of a value."""
        return encode(value, path, self.runtime.limits)

    def json_object(self, path: str, value: Json) -> dict[str, Any]:
        """A JSON object of the domain; None is the empty one."""
        return check_object(value, path, self.runtime.limits)

    def now(self) -> datetime:
        """The store's clock, cut to the milliseconds that columns keep."""
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

    def wire(self, text: str) -> str:
        """Plain JSON text for the stored text of a Json column."""
        return self.runtime.dialect.wire(text)
