"""Tasks of three owners in pieces, ends that are final, lists with filters and pages, webhooks."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from persist.framework_state.agent_tasks.schemas import Piece
from tests.statemachines.machine import UNSAID, Machine, Refused

OWNERS, IDS = st.sampled_from(["", "ann", "bob"]), st.sampled_from(["t", "T", "é"])
PIECES = st.dictionaries(
    st.tuples(st.sampled_from(["artifact", "history"]), st.integers(0, 1), st.integers(-1, 1)),
    st.sampled_from([b"", b"\x00", b"said"]),
    max_size=5,
)
STATES = st.sampled_from([("working", False), ("working", False), ("completed", True), ("failed", True)])
KEYS, CONTEXTS = st.sampled_from(["", "1", "2"]), st.sampled_from(["", "c"])


class AgentTasks(Machine):
    domain = "agent_tasks"

    def __init__(self) -> None:
        super().__init__()
        self.tasks: dict[tuple[str, str], dict[str, Any]] = {}
        self.hooks: dict[tuple[str, str, str], bytes] = {}

    @rule(owner=OWNERS, id=IDS, pieces=PIECES, state=STATES, key=KEYS, context=CONTEXTS, head=st.sampled_from([b"h", b"g"]))
    def save(
        self, owner: str, id: str, pieces: dict[Any, bytes], state: tuple[str, bool], key: str, context: str, head: bytes
    ) -> None:
        def expect(got: Any) -> Any:
            before = self.tasks.get((owner, id))
            if before is not None and before["final"] and before["state"] != state[0]:
                raise Refused("Conflict")
            known = {} if before is None else before["pieces"]
            written = sum(known.get(place) != data for place, data in pieces.items())
            new = {"state": state[0], "final": state[1], "key": key, "context": context, "head": head, "pieces": pieces}
            self.tasks[owner, id] = new
            return written

        given = [Piece(kind, position, part, data) for (kind, position, part), data in pieces.items()]
        more: dict[str, Any] = {"context_id": context, "status_key": key, "state": state[0], "final": state[1], "head": head}
        self.do("agent_tasks.tasks.save", owner, id, pieces=given, **more, expect=expect)

    @rule(owner=OWNERS, id=IDS)
    def delete(self, owner: str, id: str) -> None:
        self.do("agent_tasks.tasks.delete", owner, id, expect=lambda got: self.tasks.pop((owner, id), None) is not None)

    @rule(
        owner=OWNERS,
        context=st.sampled_from([None, "c"]),
        state=st.sampled_from([None, "working"]),
        since=st.sampled_from([None, "1"]),
        limit=st.sampled_from([1, 2]),
    )
    def pages(self, owner: str, context: str | None, state: str | None, since: str | None, limit: int) -> None:
        wanted = [
            (one["key"], id)
            for (of, id), one in self.tasks.items()
            if of == owner
            and context in (None, one["context"])
            and state in (None, one["state"])
            and (since is None or one["key"] >= since)
        ]
        wanted.sort(reverse=True)
        after: tuple[str, str] | None = None
        for begin in range(0, max(len(wanted), 1), limit):

            def expect(got: Any, begin: int = begin) -> Any:
                page = [(one.task.status_key, one.task.task_id) for one in got.items]
                assert (page, got.total, got.more) == (wanted[begin : begin + limit], len(wanted), begin + limit < len(wanted))
                return UNSAID

            given: dict[str, Any] = {"context_id": context, "state": state, "since": since, "after": after, "limit": limit}
            self.do("agent_tasks.tasks.list", owner, **given, expect=expect)
            after = (wanted[begin : begin + limit] or [("", "")])[-1]

    @rule(owner=OWNERS, task=IDS, id=st.sampled_from(["1", "2"]), data=st.sampled_from([b"", b"hook"]))
    def hook(self, owner: str, task: str, id: str, data: bytes) -> None:
        def expect(got: Any) -> Any:
            self.hooks.pop((owner, task, id), None)
            self.hooks[owner, task, id] = data
            return None

        self.do("agent_tasks.webhooks.set", task, id, owner=owner, data=data, expect=expect)

    @rule(owner=OWNERS, task=IDS, id=st.sampled_from([None, "1"]))
    def unhook(self, owner: str, task: str, id: str | None) -> None:
        def expect(got: Any) -> Any:
            gone = [key for key in self.hooks if key[:2] == (owner, task) and id in (None, key[2])]
            for key in gone:
                del self.hooks[key]
            return len(gone)

        self.do("agent_tasks.webhooks.delete", task, owner=owner, id=id, expect=expect)

    def seen(self, tx: Any) -> Any:
        tasks = {}
        for owner in ("", "ann", "bob"):
            for one in tx.agent_tasks.tasks.list(owner).items:
                found = tx.agent_tasks.tasks.get(owner, one.task.task_id)
                assert found == one
                tasks[owner, one.task.task_id] = {
                    "state": one.task.state,
                    "key": one.task.status_key,
                    "context": one.task.context_id,
                    "head": one.head,
                    "pieces": [(piece.kind, piece.position, piece.part, piece.data) for piece in one.pieces],
                }
        hooks = {
            (owner, task): [(one.id, one.data) for one in tx.agent_tasks.webhooks.list(task, owner=owner)]
            for owner in ("", "ann", "bob")
            for task in ("t", "T", "é")
        }
        return dict(sorted(tasks.items())), {key: found for key, found in hooks.items() if found}

    def expected(self) -> Any:
        tasks = {
            key: {
                **{name: one[name] for name in ("state", "key", "context", "head")},
                "pieces": [(*place, data) for place, data in sorted(one["pieces"].items())],
            }
            for key, one in sorted(self.tasks.items())
        }
        hooks = {
            (owner, task): [(id, data) for (*of, id), data in self.hooks.items() if of == [owner, task]]
            for owner in ("", "ann", "bob")
            for task in ("t", "T", "é")
        }
        return tasks, {key: found for key, found in hooks.items() if found}
