"""Output of commands compared with files of `tests/cli/outputs/`; `PERSIST_UPDATE_GOLDEN=1` writes them anew."""

import os
import re
from pathlib import Path

FOLDER = Path(__file__).with_name("outputs")


def assert_golden(name: str, output: str, replace: dict[str, str] | None = None, *, folder: Path | None = None) -> None:
    """`output` is what `outputs/<name>.txt` holds, after each pattern of `replace` became its word (instants, sizes).

    `folder` becomes FOLDER first, however it is called: with spaces in it, for example.
    """
    if folder is not None:
        output = output.replace(str(folder), "FOLDER")
    for pattern, word in (replace or {}).items():
        output = re.sub(pattern, word, output)
    path = FOLDER / f"{name}.txt"
    if os.environ.get("PERSIST_UPDATE_GOLDEN"):
        path.write_text(output, encoding="utf-8")
    assert output == path.read_text(encoding="utf-8")
