"""`python -m tests.adopt.adopting_worker URL [STEP NUMBER]`: adopts a file; it dies at that call of the step, if one is named."""

import os
import signal
import sys
from typing import Any

from persist.db.dialects.sqlite.foreign_files import ForeignFile
from persist.maintenance import adopt


def kill_at(step: str, number: int) -> None:
    """Let SIGKILL end this process at that call: in place of it, or after it where it makes a copy."""
    real, calls = getattr(ForeignFile, step), 0

    def until(self: ForeignFile, *args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        result = real(self, *args, **options) if calls < number or step == "copy_to" else None
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(ForeignFile, step, until)


if __name__ == "__main__":
    _, url, *when = sys.argv
    if when:
        kill_at(when[0], int(when[1]))
    print(adopt(url).adopted)
