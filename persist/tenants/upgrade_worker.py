"""A process that upgrades one tenant after the other: `python -m persist.tenants.upgrade_worker`.

Alembic runs one upgrade at a time in a process. Each line of standard input is a JSON object with the `url` and `schema` of a
tenant; the answer is a line with its `error`, or null. The process ends with its input: it does not outlive its parent for long.
"""

import sys

import orjson

from persist.errors import PersistError
from persist.schema.migrate import upgrade


def main() -> None:
    """Answer every line of standard input."""
    for line in sys.stdin.buffer:
        given = orjson.loads(line)
        error: str | None = None
        try:
            upgrade(given["url"], schema=given["schema"])
        except PersistError as refused:
            error = str(refused)
        except Exception as failed:
            error = f"{type(failed).__name__}: {failed}"
        sys.stdout.buffer.write(orjson.dumps({"error": error}) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
