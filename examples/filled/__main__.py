"""Fills a database with something of everything, and talks in two chats until Ctrl-C.

    python -m examples.filled                                   # in a clone of persist: filled.db in this folder
    python -m examples.filled --no-talk postgresql://…          # only fills, a database of a server
    persist ls --url sqlite:///filled.db                        # elsewhere

A database that is filled already is not filled again: the two chats go on. One that holds anything else is left alone.
"""

import argparse
import re
import signal
import sys
from pathlib import Path
from threading import Event, Timer

from examples.filled.filling import fill, is_filled, is_new
from examples.filled.talking import talk
from examples.filled.times import Clock
from persist import PersistError, Store


def main(arguments: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(
        prog="python -m examples.filled", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("database", nargs="?", default="filled.db", help="a file, sqlite:///FILE or postgresql://…")
    options.add_argument("--schema", help="the schema on Postgres")
    options.add_argument(
        "--session-logs", type=Path, metavar="DIR", help="also write the session logs of agents, below this folder"
    )
    how_long = options.add_mutually_exclusive_group()
    how_long.add_argument("--talk", type=float, metavar="SECONDS", help="talk for so long; without it until Ctrl-C")
    how_long.add_argument("--no-talk", action="store_true", help="only fill")
    given = options.parse_args(arguments)
    where = given.database if "://" in given.database else Path(given.database)
    named = re.sub(r"(://[^:/@]*):[^@]*@", r"\1:***@", given.database)  # without its password
    stop = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        with Store.open(where, schema=given.schema, migrate=True, clock=Clock()) as store:
            if is_filled(store):
                print(f"{named} is filled already, and nothing is added.", flush=True)
            elif not is_new(store):
                print(f"{named} holds other data and is left alone: name another file or database.", file=sys.stderr)
                return 1
            else:
                ids = fill(store, session_logs_folder=given.session_logs)
                print(f"{named} is filled: {ids['finished_run']} is a run to begin with, {ids['chat']} a chat.", flush=True)
        if not given.no_talk and not stop.is_set():
            print("Two chats go on until Ctrl-C." if given.talk is None else f"Two chats go on for {given.talk:g} s.", flush=True)
            with Store.open(where, schema=given.schema) as store:
                _talk_for(store, stop, given.talk)
    except PersistError as error:
        print(f"{named}: {error}", file=sys.stderr)
        return 1
    return 0


def _talk_for(store: Store, stop: Event, seconds: float | None) -> None:
    timer = None if seconds is None else Timer(seconds, stop.set)
    if timer is not None:
        timer.daemon = True
        timer.start()
    talk(store, stop)


if __name__ == "__main__":
    sys.exit(main())
