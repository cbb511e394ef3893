"""What can be measured, in the order of the page."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from benchmarks.measure import Row
from benchmarks.place import Place


@dataclass(frozen=True)
class Part:
    """A module of this package whose `rows` measures, and whose docstring introduces what it measured."""

    name: str
    title: str
    postgres: bool = True
    peers: bool = False
    """Whether it needs the libraries of peers.txt."""

    quick: bool = True
    """Whether it is part of a quick look."""

    def rows(self, place: Place) -> Iterator[Row]:
        """Measure; imports only now what it needs."""
        run = cast("Callable[[Place], Iterator[Row]]", import_module(f"benchmarks.{self.name}").rows)
        yield from run(place)


PARTS = (
    Part("recording", "Recording"),
    Part("streaming", "Many streams at once"),
    Part("usage", "Usage of models"),
    Part("observing", "Traces and metrics", postgres=False),
    Part("policies", "Save policies"),
    Part("scaling", "Length and processes", quick=False),
    Part("following", "Following an answer", quick=False),
    Part("posting", "Posts of a browser"),
    Part("workflows", "Lists of runs"),
    Part("claims", "Claims of many workers", quick=False),
    Part("network", "On a network", quick=False),
    Part("growth", "Growth", quick=False),
    Part("counting", "Counts", quick=False),
    Part("pages", "Pages", quick=False),
    Part("reading", "Reading a session"),
    Part("conversations", "Conversations"),
    Part("opening", "Opening a store", postgres=False),
    Part("tenants", "Tenants", quick=False),
    Part("faces", "AsyncStore", postgres=False),
    Part("memory", "Memory", postgres=False, quick=False),
    Part("vectors", "Search by embedding", quick=False),
    Part("programs", "Scopes of programs", postgres=False),
    Part("telemetry", "Telemetry", quick=False),
    Part("events", "The log of events", quick=False),
    Part("logging_writers", "The log of events with many writers", quick=False),
    Part("holding", "Long holds", quick=False),
    Part("backup", "Backup", postgres=False, quick=False),
    Part("copying", "Copying", quick=False),
    Part("sessionlog", "Session logs", postgres=False),
    Part("savers", "Checkpointers of LangGraph", peers=True, quick=False),
    Part("integrations", "Integrations", peers=True, quick=False),
    Part("working", "Workers", quick=False),
    Part("queues", "Queues of other libraries", peers=True, quick=False),
    Part("peers", "The same job in other libraries", peers=True, quick=False),
)
BY_NAME = {part.name: part for part in PARTS}
