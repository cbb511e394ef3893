"""Conversations that fork, branch and are deleted, with compare-and-swap; runs whose snapshots share messages."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from persist.framework_state.histories.schemas import Message, NewEntry
from persist.testing import START
from tests.statemachines.machine import UNSAID, Machine, Refused

IDS, RUNS = st.sampled_from(["a", "b", "c"]), st.sampled_from(["r", "s"])


class Histories(Machine):
    domain = "histories"

    def __init__(self) -> None:
        super().__init__()
        self.parents: dict[str, str | None] = {}
        self.records: dict[str, dict[str, Any]] = {}
        self.count = 0
        self.snapshots: dict[str, list[tuple[str, str, str | None]]] = {}
        self.high: dict[str, tuple[int, set[str]]] = {}

    def _history(self, head: str | None) -> list[str]:
        found: list[str] = []
        while head is not None:
            found.append(head)
            head = self.parents[head]
        return found[::-1]

    @rule(id=IDS, pick=st.integers(-3, 30), new=st.integers(0, 3), expected=st.sampled_from(["right", "right", "wrong", "none"]))
    def put(self, id: str, pick: int, new: int, expected: str) -> None:
        self.count += 1
        record = self.records.get(id)
        known = list(self.parents)
        before = known[pick % len(known)] if known and pick >= 0 else None
        behind = record["head"] if record is not None and pick % 2 else before
        ids = [f"e{self.count}.{number}" for number in range(new)]
        entries = [NewEntry(one, parent, Message({"said": one})) for one, parent in zip(ids, [behind, *ids], strict=False)]
        head = ids[-1] if ids else behind
        left = [] if record is None else [*record["branches"], *([record["head"]] if record["head"] not in (None, head) else [])]
        revision = None if record is None else record["revision"]
        given = {"right": revision, "wrong": "wrong", "none": None}[expected]

        def expect(got: Any) -> Any:
            if given != revision:
                raise Refused("Conflict")
            self.parents |= {entry.id: entry.parent_id for entry in entries}
            self.records[id] = {"revision": f"{self.count}", "head": head, "branches": left}
            return None

        more: dict[str, Any] = {"revision": f"{self.count}", "expected_revision": given, "head_id": head, "updated_at": START}
        self.do("histories.records.put", id, **more, entries=entries, branches=left, expect=expect)

    @rule(id=IDS, right=st.booleans())
    def delete(self, id: str, right: bool) -> None:
        record = self.records.get(id)

        def expect(got: Any) -> Any:
            if not right:
                raise Refused("Conflict")
            if record is None:
                return False
            del self.records[id]
            reached = {
                entry for one in self.records.values() for tip in [one["head"], *one["branches"]] for entry in self._history(tip)
            }
            self.parents = {entry: parent for entry, parent in self.parents.items() if entry in reached}
            return True

        self.do("histories.records.delete", id, expected_revision=None if right else "wrong", expect=expect)

    @rule(id=IDS, limit=st.sampled_from([0, 1, 2, 9]))
    def end(self, id: str, limit: int) -> None:
        record = self.records.get(id)
        if record is not None and record["head"] is not None:
            wanted = self._history(record["head"])[-limit:] if limit else []

            def expect(got: Any) -> Any:
                assert [one.id for one in got] == wanted
                return UNSAID

            self.do("histories.entries.list", record["head"], limit=limit, expect=expect)

    @rule(
        run=RUNS,
        letters=st.sampled_from(["", "a", "ab", "abc", "abcd", "abx", "xb", "abab"]),
        state=st.sampled_from(["complete", "interrupted"]),
        key=st.sampled_from([None, "plain", "0:a", "1:a", "1:b", "2:a"]),
        keep=st.sampled_from([None, 1, 2]),
    )
    def snapshot(self, run: str, letters: str, state: str, key: str | None, keep: int | None) -> None:
        sequence = int(key[0]) if key is not None and ":" in key else None

        def expect(got: Any) -> Any:
            kept = self.snapshots.setdefault(run, [])
            high, keys = self.high.get(run, (-1, set()))
            if any(key is not None and one[2] == key for one in kept):
                return False
            if sequence is not None and key is not None:
                if sequence < high or (sequence == high and key in keys):
                    return False
                self.high[run] = (sequence, {key} | (keys if sequence == high else set()))
            kept.append((letters, state, key))
            if keep is not None and len(kept) > keep:
                complete = [at for at, one in enumerate(kept) if one[1] == "complete"]
                stays = {*range(len(kept) - keep, len(kept)), *complete[-1:]}
                self.snapshots[run] = [one for at, one in enumerate(kept) if at in stays]
            return True

        messages = [Message({"said": letter}) for letter in letters]
        more: dict[str, Any] = {"state": state, "step_index": 0, "taken_at": START, "idempotency_key": key}
        self.do("histories.snapshots.save", run, messages, **more, sequence=sequence, keep=keep, expect=expect)

    @rule(run=RUNS)
    def forget(self, run: str) -> None:
        def expect(got: Any) -> Any:
            self.high.pop(run, None)
            return self.snapshots.pop(run, None) is not None

        self.do("histories.runs.delete", run, expect=expect)

    def seen(self, tx: Any) -> Any:
        records = {
            one.id: (one.revision, one.head_id, list(one.branches), self._read(tx, one.head_id))
            for one in tx.histories.records.latest()
        }
        snapshots = {
            run: [
                ("".join(entry.message["said"] for entry in one.entries), str(one.snapshot.state), one.snapshot.idempotency_key)
                for one in tx.histories.snapshots.list(run, include_interrupted=True)
            ]
            for run in ("r", "s")
        }
        return dict(sorted(records.items())), snapshots, [tx.histories.entries.get(id).parent_id for id in self.parents]

    @staticmethod
    def _read(tx: Any, head: str | None) -> list[str]:
        return [] if head is None else [entry.id for entry in tx.histories.entries.list(head)]

    def expected(self) -> Any:
        records = {
            id: (one["revision"], one["head"], one["branches"], self._history(one["head"]))
            for id, one in sorted(self.records.items())
        }
        return records, {run: self.snapshots.get(run, []) for run in ("r", "s")}, list(self.parents.values())
