"""`python -m tests.schema.upgrading_worker URL [WORDS N]`: upgrades; kills itself before the N-th statement with WORDS."""

import os
import signal
import sys
from typing import Any

from sqlalchemy import Engine, event

import persist


def main(url: str, words: str = "", count: str = "0") -> None:
    left = int(count)

    def die(statement: str) -> None:
        nonlocal left
        if words and words in statement:
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    @event.listens_for(Engine, "before_cursor_execute")
    def _(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        die(statement)

    @event.listens_for(Engine, "commit")
    def _(connection: Any) -> None:
        die("COMMIT")

    persist.upgrade(url)


if __name__ == "__main__":
    main(*sys.argv[1:])
