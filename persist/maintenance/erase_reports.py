"""The report of an erasure: what went and what stayed, in numbers, signed so that it can be shown later."""

import hmac
import json
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from persist.db.values.frozen import Value
from persist.errors import InvalidValue

if TYPE_CHECKING:
    from persist.maintenance.erasure_marks import Mark

HMAC, DIGEST = "hmac-sha256", "sha256"


class EraseReport(Value):
    """What an erasure removed, or with `dry_run` would remove. Beside the selectors it has numbers only.

    selectors    by what the person was named
    begun_at     when the erasure began; for one that was interrupted, when it began first
    tables       row counts by table, without zeros
    events       how many events of the log lost what they said
    files        how many session logs, and folders of their subagents, were deleted
    kept         what was found and stays: how many, by the reason
    algorithm    "hmac-sha256", with the key of the caller, or "sha256" without one
    signature    of all other fields, in hexadecimal digits; see `verify_report`
    """

    id: str
    selectors: dict[str, str]
    begun_at: datetime
    finished_at: datetime
    dry_run: bool
    tables: dict[str, int]
    events: int
    files: int
    kept: dict[str, int]
    algorithm: str
    signature: str

    @property
    def total(self) -> int:
        """The number of rows in all tables."""
        return sum(self.tables.values())


def report_of(done: "Mark", *, finished_at: datetime, trial: bool, key: bytes | None) -> EraseReport:
    """The signed report of an erasure."""
    fields = {
        "id": done.id,
        "selectors": done.selectors,
        "begun_at": done.begun_at,
        "finished_at": finished_at,
        "dry_run": trial,
        "tables": {name: count for name, count in sorted(done.rows.items()) if count},
        "events": done.events,
        "files": done.files,
        "kept": dict(sorted(done.kept.items())),
    }
    return signed(fields, key)


def signed(fields: Mapping[str, Any], key: bytes | None) -> EraseReport:
    """The report with these fields, signed."""
    report = EraseReport(**fields, algorithm=DIGEST if key is None else HMAC, signature="")
    return report.model_copy(update={"signature": _signature(report, key)})


def verify_report(report: EraseReport | Mapping[str, Any] | str | bytes, key: str | bytes | None = None) -> bool:
    """Whether a report is as it was signed. `report`: the value, its fields, or its JSON. `key`: the one that it was signed with.

    Without a key only the digest of a report that has no other signature is compared, which anybody can make anew. A report with
    a signature is not verified without its key, nor one with a digest alone by a key. Nor is one with a wrong `total`, with a
    name twice, or with a value of another type than it was signed with. Raises InvalidValue for what is no report.
    """
    checked = sign_key_of(key)
    found, exact = _report_of(report)
    if not exact or found.algorithm != (DIGEST if checked is None else HMAC):
        return False
    return hmac.compare_digest(found.signature.encode("utf-8", "surrogatepass"), _signature(found, checked).encode())


def sign_key_of(key: object) -> bytes | None:
    """The key as bytes. Raises InvalidValue unless it is text or bytes that are not empty; the key is not repeated."""
    if key is None:
        return None
    if isinstance(key, str):
        key = key.encode("utf-8", "surrogatepass")
    if not isinstance(key, bytes):
        raise InvalidValue("sign_key", f"expected text or bytes, got {type(key).__name__}.")
    if not key:
        raise InvalidValue("sign_key", "it is empty.")
    return key


def _report_of(report: object) -> tuple[EraseReport, bool]:
    """The report, and whether what was given says this and nothing else."""
    if isinstance(report, EraseReport):
        return report, True
    names: list[list[str]] = []
    try:
        fields: Any = json.loads(report, object_pairs_hook=partial(_noted, names)) if isinstance(report, str | bytes) else report
        if not isinstance(fields, Mapping):
            raise InvalidValue("report", "expected the report of an erasure.")
        found = EraseReport(**{name: value for name, value in fields.items() if name != "total"})
        given = json.dumps(dict(fields), sort_keys=True, default=to_jsonable_python)
    except (ValidationError, ValueError, TypeError, RecursionError) as error:
        raise InvalidValue("report", "expected the report of an erasure.") from error
    total = {"total": found.total} if "total" in fields else {}
    same = given == json.dumps({**found.model_dump(mode="json"), **total}, sort_keys=True)
    return found, same and all(len(set(of)) == len(of) for of in names)


def _noted(names: list[list[str]], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names.append([name for name, _ in pairs])
    return dict(pairs)


def _signature(report: EraseReport, key: bytes | None) -> str:
    fields = report.model_dump(mode="json", exclude={"signature"})
    text = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    return sha256(text).hexdigest() if key is None else hmac.new(key, text, sha256).hexdigest()
