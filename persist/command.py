"""The start of the `persist` command: Ctrl-C ends it in one line from here on, before anything large is imported."""

import signal

from persist.interruption import leave


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGINT, leave)
    from persist.cli.root import main as command  # importing takes long enough to be interrupted

    command(prog_name="persist")
