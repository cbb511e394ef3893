"""Threads of graph runners with their states, and memories that expire."""

from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from persist.framework_state.checkpoints.schemas import Blob
from tests.statemachines.machine import UNSAID, Machine, Refused

THREADS, IDS = st.sampled_from(["a", "b"]), st.sampled_from(["1", "2", "3"])
NAMESPACES = st.sampled_from([(), ("x",), ("x", "y"), ("xy",), ("x.y",), ("",)])
KEYS = st.sampled_from(["k", "", "l"])
PIECES = st.lists(st.sampled_from([b"", b"a", b"\x00\xff"]), max_size=3)


class Checkpoints(Machine):
    domain = "checkpoints"

    def __init__(self) -> None:
        super().__init__()
        self.threads: dict[str, dict[str, list[bytes]]] = {}
        self.memories: dict[tuple[tuple[str, ...], str], tuple[Any, datetime | None, datetime]] = {}

    @rule(thread=THREADS, id=IDS, pieces=PIECES)
    def put(self, thread: str, id: str, pieces: list[bytes]) -> None:
        """A version is stored once: put again, the first value stays."""

        def expect(got: Any) -> Any:
            self.threads.setdefault(thread, {}).setdefault(id, pieces)
            return None

        values = {"said": (f"{id} {len(pieces)}", [Blob("b", piece) for piece in pieces])}
        known = self.threads.get(thread, {}).get(id)
        if known is None or known == pieces:
            version = values["said"][0]
            fields = {"head": Blob("h", b"h"), "versions": {"said": version}, "values": values}
            self.do("checkpoints.states.put", thread, id, **fields, expect=expect)

    @rule(start=THREADS, end=THREADS)
    def copy(self, start: str, end: str) -> None:
        def expect(got: Any) -> Any:
            if start not in self.threads:
                return False
            if end in self.threads:
                raise Refused("Conflict")
            self.threads[end] = dict(self.threads[start])
            return True

        self.do("checkpoints.threads.copy", start, end, expect=expect)

    @rule(thread=THREADS)
    def forget(self, thread: str) -> None:
        self.do("checkpoints.threads.delete", thread, expect=lambda got: self.threads.pop(thread, None) is not None)

    @rule(thread=THREADS)
    def keep_latest(self, thread: str) -> None:
        def expect(got: Any) -> Any:
            ids = self.threads.get(thread, {})
            gone = sorted(ids)[:-1]
            for id in gone:
                del ids[id]
            return len(gone)

        self.do("checkpoints.threads.keep_latest", thread, expect=expect)

    @rule(
        namespace=NAMESPACES,
        key=KEYS,
        value=st.sampled_from([{}, {"a": "\x00\ud83d"}, []]),
        ttl=st.sampled_from([None, 0, 1, 0.5, 1e300]),
    )
    def remember(self, namespace: tuple[str, ...], key: str, value: Any, ttl: float | None) -> None:
        def expect(got: Any) -> Any:
            if not _named(namespace) or value == [] or ttl == 1e300:
                raise Refused("InvalidValue")
            until = None if ttl is None else self.clock() + timedelta(minutes=ttl)
            self.memories[namespace, key] = (value, until, self.clock())
            return None

        self.do("checkpoints.memories.put", namespace, key, value, ttl_minutes=ttl, expect=expect)

    @rule(namespace=NAMESPACES, key=KEYS)
    def delete(self, namespace: tuple[str, ...], key: str) -> None:
        def expect(got: Any) -> Any:
            if not _named(namespace):
                raise Refused("InvalidValue")
            return self.memories.pop((namespace, key), None) is not None

        self.do("checkpoints.memories.delete", namespace, key, expect=expect)

    @rule()
    def sweep(self) -> None:
        def expect(got: Any) -> Any:
            gone = [place for place in self.memories if not self.lives(place)]
            for place in gone:
                del self.memories[place]
            return len(gone)

        self.do("checkpoints.memories.sweep", expect=expect)

    @rule(prefix=NAMESPACES)
    def search(self, prefix: tuple[str, ...]) -> None:
        def expect(got: Any) -> Any:
            if not _named(prefix):
                raise Refused("InvalidValue")
            below = [
                (place, self.memories[place][2])
                for place in self.memories
                if place[0][: len(prefix)] == prefix and self.lives(place)
            ]
            below.sort(key=lambda one: (".".join(one[0][0]), one[0][1]))
            below.sort(key=lambda one: one[1], reverse=True)
            assert [(one.namespace, one.key) for one in got] == [place for place, _ in below]
            return UNSAID

        self.do("checkpoints.memories.list", prefix, expect=expect)

    def lives(self, place: tuple[tuple[str, ...], str]) -> bool:
        until = self.memories[place][1]
        return until is None or until > self.clock()

    def seen(self, tx: Any) -> Any:
        states = tx.checkpoints.states
        threads = sorted(thread.id for thread in tx.checkpoints.threads.list().items)
        loaded = {thread: states.load(states.page(thread_id=thread)) for thread in threads}
        return {
            "threads": {
                thread: {one.checkpoint.id: [piece.data for piece in one.values["said"]] for one in found}
                for thread, found in loaded.items()
            },
            "memories": {(one.namespace, one.key): (one.value, one.expires_at) for one in tx.checkpoints.memories.list()},
            "namespaces": tx.checkpoints.memories.namespaces(),
        }

    def expected(self) -> Any:
        living = {place: found[:2] for place, found in self.memories.items() if self.lives(place)}
        return {"threads": self.threads, "memories": living, "namespaces": sorted({place[0] for place in living})}


def _named(namespace: tuple[str, ...]) -> bool:
    return all(label and "." not in label for label in namespace)
