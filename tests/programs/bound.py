"""Short ways to bind files, and to look at what became of them."""

from pathlib import Path
from typing import Any

from persist import Store
from persist.programs.schemas import Binding

MB = 2**20


def bind_file(store: Store, run: str, name: str, path: object, **options: Any) -> Binding:
    return store.programs.bindings.bind_file(run, name, path, **options)  # type: ignore[arg-type]  # whatever a caller gives


def read(store: Store, run: str, name: str, frame: int | None = None) -> bytes:
    with store.read() as tx, tx.programs.bindings.open_file(run, name, execution_id=frame) as stream:
        return stream.read()


def attached(file: Path) -> list[str]:
    """What is in attachments/."""
    return sorted(one.name for one in (file.parent / "attachments").glob("*"))
