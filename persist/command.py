"""The start of the `persist` command: Ctrl-C and SIGTERM end it in one line from here on, before anything large is imported."""

from persist.interruption import listen


def main() -> None:
    """Run the command line."""
    listen()
    from persist.cli.root import main as command  # importing takes long enough to be interrupted

    command(prog_name="persist")
