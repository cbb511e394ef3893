"""Folders of runs on disk, for the tests of import."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from persist.conversations.schemas import ImportReport

AT = 1_747_000_000.25
SPOKEN = datetime.fromtimestamp(AT, UTC)


def report(imported: int = 0, skipped: int = 0, errors: int = 0) -> ImportReport:
    return ImportReport(imported=imported, skipped=skipped, errors=errors)


def message(id: str, role: str = "user", **fields: Any) -> dict[str, Any]:
    return {"id": id, "created_at": AT, "role": role, "content": {"text": id}, "metadata": {"lion_class": f"x.{role}"}, **fields}


def branch(*ids: str, order: list[Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A branch file as a runtime dumps it; ids that begin with s are system messages."""
    pile = [message(id, "system" if id.startswith("s") else "user") for id in ids]
    progression = {"order": list(ids) if order is None else order}
    return {"created_at": AT, "messages": {"collections": pile, "progression": progression}, **fields}


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def make_run(runs: Path, run: str, manifest: Any = None, **files: Any) -> Path:
    """A run folder with these branch files, each written a second after the one before."""
    folder = runs / run
    write(folder / "run.json", {"run_id": run} if manifest is None else manifest)
    for number, (name, content) in enumerate(files.items()):
        path = write(folder / "branches" / f"{name}.json", content)
        os.utime(path, (AT + number, AT + number))
    return folder
