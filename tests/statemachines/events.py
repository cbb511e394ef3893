"""A caller's own events, in streams that are read, followed and trimmed."""

from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule
from sqlalchemy import Table

from persist.schema.metadata import metadata
from tests.statemachines.machine import UNSAID, Machine, Refused

STREAMS = st.sampled_from(["a", "b", "nobody's"])


class Events(Machine):
    domain = "events"

    def __init__(self) -> None:
        super().__init__()
        self.streams: dict[str, list[tuple[int, str, Any, datetime]]] = {"a": [], "b": []}
        for store in self.stores:
            store.switch_events(True)

    def emptied(self) -> list[Table]:
        return metadata.sorted_tables  # what is there when the log is switched on would be in snapshots

    def teardown(self) -> None:
        for store in self.stores:
            store.switch_events(False)

    @rule(
        stream=st.sampled_from(["a", "b", "*"]),
        kind=st.sampled_from(["noted", "snapshot", ""]),
        data=st.sampled_from([None, {"k": "\x00\ud83d"}, 1e16]),
    )
    def append(self, stream: str, kind: str, data: Any) -> None:
        def expect(got: Any) -> Any:
            if stream == "*" or kind != "noted":
                raise Refused("InvalidValue")
            known = self.streams[stream]
            known.append((known[-1][0] + 1 if known else 1, kind, data, self.clock()))
            assert (got.seq, got.stream_id) == (known[-1][0], stream)
            return UNSAID

        self.do("events.append", stream, kind, data, expect=expect)

    @rule(stream=STREAMS, keep=st.sampled_from([None, 0, 1, 2]), days=st.sampled_from([None, 0, 1]))
    def trim(self, stream: str, keep: int | None, days: int | None) -> None:
        def expect(got: Any) -> Any:
            if days is None and keep is None:
                raise Refused("InvalidValue")
            found = self.streams.get(stream, [])
            if not found:
                return 0
            upto = found[-1][0] - (keep or 0)
            if days is not None:
                before = self.clock() - timedelta(days=days)
                upto = max((seq for seq, _, _, at in found if at < before and seq <= upto), default=0)
            if found[-1][1] == "snapshot":  # nothing happened since: this is where readers begin
                upto = min(upto, found[-1][0] - 1)
            elif upto >= found[0][0]:
                found.append((found[-1][0] + 1, "snapshot", {"v": 1, "changes": []}, self.clock()))
            gone = [one for one in found if one[0] <= upto]
            self.streams[stream] = found[len(gone) :]
            return len(gone)

        self.do("events.trim", stream, older_than=None if days is None else timedelta(days=days), keep=keep, expect=expect)

    @rule(stream=STREAMS, after=st.integers(-1, 3), limit=st.integers(0, 2))
    def read(self, stream: str, after: int, limit: int) -> None:
        def expect(got: Any) -> Any:
            if after < 0 or limit < 1:
                raise Refused("InvalidValue")
            assert [one.seq for one in got] == [one[0] for one in self.streams.get(stream, []) if one[0] > after][:limit]
            return UNSAID

        self.do("events.read", stream, after=after, limit=limit, expect=expect)

    def seen(self, tx: Any) -> Any:
        return {name: [(one.seq, one.type, one.data, one.at) for one in tx.events.read(name)] for name in self.streams}

    def expected(self) -> Any:
        return self.streams
