"""Names: of runs, of values nobody named, of values of an imported program, and of the files that large values go to. Pure."""

import hashlib
import re
import string
from collections.abc import Callable
from datetime import UTC, datetime

from persist.db.types import check_label
from persist.errors import InvalidValue

ANONYMOUS = "anon_"
ATTACHMENTS = "attachments"

_BASE36 = string.digits + string.ascii_lowercase
_NUMBERED = re.compile(rf"{ANONYMOUS}(\d{{3,18}})", re.ASCII)
_SAFE = frozenset(string.ascii_letters + string.digits + "_-.")
_LIKE_A_FRAME = re.compile(r"__(\d+)\Z", re.ASCII)
_LONGEST = 180


def run_id(now: datetime, random: Callable[[str], str]) -> str:
    """`YYYYMMDD-HHMMSS-` and six characters; `random` draws one of a text, as random.choice does. The time is UTC."""
    drawn = "".join(random(_BASE36) for _ in range(6))
    return f"{now.astimezone(UTC):%Y%m%d-%H%M%S}-{drawn}"


def anonymous_number(name: str) -> int:
    """The number of an anonymous name; 0 for any other name."""
    found = _NUMBERED.fullmatch(name)
    return int(found[1]) if found else 0


def anonymous_name(number: int) -> str:
    """`anon_001`, …, `anon_999`, `anon_1000`."""
    return f"{ANONYMOUS}{number:03d}"


def imported(alias: str, name: str) -> str:
    """`alias.name`: how a value of an imported program is bound."""
    return f"{check_alias(alias)}.{check_label('name', name)}"


def check_alias(alias: object) -> str:
    """An alias is not empty and holds no dot, or its names could be another one's."""
    text = check_label("alias", alias)
    if not text or "." in text:
        raise InvalidValue("alias", "expected a name without a dot.")
    return text


def attachment_path(name: str, execution_id: int | None, *, replacing: str | None = None) -> str:
    """Where a large value is kept, relative to the run's directory: `attachments/name.md`, in a frame `name__42.md`.

    What a file name should not hold is written %XX, and so is what would make two names share a file. `replacing` is the path
    of the value that is stored now: a new one never overwrites it, since its transaction may still be rolled back.
    """
    stem = _encoded(_LIKE_A_FRAME.sub(r"%5F%5F\1", name.replace("%", "%25")))
    if len(stem) > _LONGEST:
        stem = f"{stem[:_LONGEST].rstrip('%')}%{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
    if execution_id is not None:
        stem = f"{stem}__{execution_id}"
    path = f"{ATTACHMENTS}/{stem}.md"
    return f"{ATTACHMENTS}/{stem}~2.md" if path == replacing else path


def _encoded(text: str) -> str:
    """Everything that is unsafe as %XX; what is encoded already stays."""
    dotted = f"%2E{text[1:]}" if text.startswith(".") else text
    return "".join(
        character
        if character in _SAFE or character == "%"
        else "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))
        for character in dotted
    )
