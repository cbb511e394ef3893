"""`make bench`: the table of ratios, as Markdown, for this machine."""

import sys
import tempfile
from pathlib import Path

from benchmarks import backup, chat, conversations, events, programs, sessionlog, telemetry, vectors, workflows
from benchmarks.measure import heading


def main() -> int:
    """Print the table; the goals are for reading, not for failing a build on a slow machine."""
    print(heading())
    domains = (
        chat.chunks,
        chat.reading,
        chat.opening,
        chat.faces,
        workflows.lists,
        conversations.on_file,
        vectors.search,
        programs.scopes,
        telemetry.windows,
        events.on_file,
        backup.under_load,
    )
    for bench in (*domains, sessionlog.writing, sessionlog.memory):
        with tempfile.TemporaryDirectory() as folder:
            for row in bench(Path(folder)):
                print(row.markdown(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
