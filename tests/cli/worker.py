"""`python -m tests.cli.worker ARGS…`: the `persist` command, where what a fresh interpreter does is not the point."""

from persist.command import main

if __name__ == "__main__":
    main()
