"""A process that appends to one log: `python worker.py HOME NAME BATCHES`, endlessly without a number of batches."""

import itertools
import sys

from persist.sessionlog import SessionLogWriter


def main(home: str, name: str, batches: int | None) -> None:
    """Batches of five lines that say whose they are, with texts of many lengths."""
    with SessionLogWriter(home, "-x", strict=True) as log:
        for batch in itertools.count() if batches is None else range(batches):
            blocks = [[{"type": "text", "text": f"{name} {batch} {line} " + "é" * (batch % 9000)}] for line in range(5)]
            log.feed_many(
                {"type": "message_end", "sessionId": "s1", "message": {"role": "assistant", "content": content}}
                for content in blocks
            )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else None)
