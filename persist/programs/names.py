"""Names of runs, anonymous values, values of imported programs, and files of large values. Pure."""

import os
import re
import string
import sys
from collections.abc import Callable
from datetime import UTC, datetime

from persist.db.values.arguments import check_label
from persist.errors import InvalidValue, named, shown

ANONYMOUS = "anon_"
ATTACHMENTS = "attachments"
_BASE36 = string.digits + string.ascii_lowercase
_NUMBERED = re.compile(rf"{ANONYMOUS}(\d{{3,18}})", re.ASCII)
_SAFE = frozenset(string.ascii_letters + string.digits + "_-.")
_OURS = re.compile(r".*__([0-9a-f]{32})\.md", re.DOTALL)
_LONGEST = 160


def run_id(now: datetime, random: Callable[[str], str]) -> str:
    """`YYYYMMDD-HHMMSS-` in UTC and six characters; `random` picks a character of a text, as random.choice does."""
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
    """`alias.name`: the name under which a value of an imported program is bound."""
    return f"{check_alias(alias)}.{check_label('name', name)}"


def check_alias(alias: object) -> str:
    """The alias. Raises InvalidValue if it is empty or has a dot, which would make `alias.name` ambiguous."""
    text = check_label("alias", alias)
    if not text or "." in text:
        raise InvalidValue("alias", "expected a name without a dot.")
    return text


def attachment_path(name: str, execution_id: int | None, token: str) -> str:
    """The relative path of a large value, `attachments/name__TOKEN.md` or `name__42__TOKEN.md`, whose token is never reused."""
    return f"{ATTACHMENTS}/{_stem(name, execution_id)}__{token}.md"


def lent_path(name: str, execution_id: int | None, token: str) -> str:
    """A path for a subagent with a shell: `attachments/name__shell_TOKEN.md`. Such a file may change, and stays."""
    return f"{ATTACHMENTS}/{_stem(name, execution_id)}__shell_{token}.md"


def attachment_token(path: str) -> str | None:
    """The token in the path of a file that the library named; None for every other path."""
    try:
        parts = attachment_parts(path)
    except InvalidValue:
        return None
    found = _OURS.fullmatch(parts[1]) if len(parts) == 2 else None
    return found[1] if found else None


def attachment_parts(path: str) -> tuple[str, ...]:
    """The path components of a stored file below the run's directory, `attachments` first. Raises InvalidValue for others."""
    if not isinstance(path, str):  # a raw writer may store bytes where there should be text
        raise InvalidValue("attachment_path", f"{shown(path)} is stored, which is no text.")
    spelled = path.replace(os.sep, "/")
    parts = tuple(part for part in spelled.split("/") if part not in ("", "."))
    leaves = "\x00" in path or spelled.startswith("/") or not all(part.strip(". ") for part in parts)
    if leaves or len(parts) < 2 or parts[0] != ATTACHMENTS or (sys.platform == "win32" and ":" in path) or not _has_a_name(path):
        raise InvalidValue("attachment_path", f"{named(path)} is no file below {ATTACHMENTS}/ in the run's directory.")
    return parts


def _has_a_name(path: str) -> bool:
    try:
        os.fsencode(path)
    except ValueError:
        return False
    return True


def _stem(name: str, execution_id: int | None) -> str:
    stem = _encoded(name.replace("%", "%25"))[:_LONGEST]
    return stem if execution_id is None else f"{stem}__{execution_id}"


def _encoded(text: str) -> str:
    dotted = f"%2E{text[1:]}" if text.startswith(".") else text
    return "".join(
        character
        if character in _SAFE or character == "%"
        else "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))
        for character in dotted
    )
