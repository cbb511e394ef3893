"""Threads of graphs: step by step with what each step changed, and one step with its whole state."""

from collections.abc import Mapping, Sequence
from typing import Any

from persist.cli.framework_state import checkpoints
from persist.cli.nouns import Answer
from persist.cli.output import shortened
from persist.framework_state.checkpoints.schemas import Checkpoint, Loaded, Stored
from persist.store.transaction import Transaction
from persist.ui.packed import shown, shown_blob
from persist.ui.views import MOST_ROWS, ROWS, Visit, found

_STEPS = 20
_LENGTH = 300
"""How many characters of a channel's value the list of steps shows."""
_STEERING = ("branch:", "__")
"""How channels begin by which a runner says what comes next."""
_CHANNELS = 12
"""How many channels of a step are read for the list of steps."""


def graph(visit: Visit) -> dict[str, Any]:
    """A thread with its newest steps, and what each changed: the channels whose version its parent has not."""
    tx, id = visit.tx, visit.values["id"]
    thread = tx.checkpoints.threads.get(id)
    namespace, rows = (
        visit.query.get("namespace") if "namespace" in visit.query else None,
        visit.number("limit", _STEPS, MOST_ROWS),
    )
    steps = tx.checkpoints.states.page(thread_id=id, namespace=namespace, before=visit.text("before"), limit=rows + 1)
    known = {(one.namespace, one.id): one for one in steps}
    pairs = [(one, known.get((one.namespace, one.parent_id or ""))) for one in steps]
    stored = _Values(tx, pairs)
    return {
        "title": thread.id,
        "thread": thread,
        "namespace": namespace,
        "steps": [_row(stored, one, parent) for one, parent in pairs[:rows]],
        "before": steps[rows - 1].id if len(steps) > rows else None,
        "refresh": not visit.text("before"),
    }


class _Values:
    """The values of the channels that steps changed, each read once."""

    def __init__(self, tx: Transaction, steps: Sequence[tuple[Checkpoint, Checkpoint | None]]) -> None:
        self._read: dict[tuple[str, str, str], Stored] = {}
        for one, parent in steps:
            versions = _versions(one)
            wanted = {name: versions[name] for name in changed(one, parent)[:_CHANNELS]}
            if wanted:
                found = tx.checkpoints.states.values(one.thread_id, wanted, namespace=one.namespace)
                self._read |= {(one.namespace, name, wanted[name]): value for name, value in found.items()}

    def of(self, one: Checkpoint | None, name: str) -> Stored | None:
        """A channel's value at a step; None where none was read."""
        return None if one is None else self._read.get((one.namespace, name, _versions(one).get(name, "")))


def _row(stored: _Values, one: Checkpoint, parent: Checkpoint | None) -> dict[str, Any]:
    every = changed(one, parent)
    names = [name for name in every if not name.startswith(_STEERING)]
    return {
        "step": one,
        **_told(one),
        "changed": [(name, *_difference(stored.of(parent, name), stored.of(one, name))) for name in names[:_CHANNELS]],
        "left": max(0, len(names) - _CHANNELS),
        "steering": [name for name in every if name.startswith(_STEERING)][:_CHANNELS],
        "from_unknown": parent is None and one.parent_id is not None,
    }


def _difference(before: Stored | None, now: Stored | None) -> tuple[str, str | None]:
    """How a value changed: what a list got, or which fields of an object were set; else to what. None: no value is known."""
    if now is None:
        return "", None
    if isinstance(before, Sequence) and isinstance(now, Sequence) and [*now[: len(before)]] == [*before]:
        return "added", _line(shown(now[len(before) :]))
    old, new = None if before is None else shown(before), shown(now)
    if isinstance(old, list) and isinstance(new, list) and len(new) > len(old) > 0 and new[: len(old)] == old:
        return "added", _line(new[len(old) :])
    if isinstance(old, dict) and isinstance(new, dict) and old and old.keys() <= new.keys():
        return "set", _line({name: value for name, value in new.items() if name not in old or old[name] != value})
    return "", _line(new)


def _line(value: Any) -> str:
    return shortened(_brief(value), _LENGTH)


def _brief(value: Any) -> Any:
    """A value without the fields that say nothing, of which messages have many."""
    if isinstance(value, list):
        return [_brief(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: _brief(one) for name, one in value.items() if one not in (None, "", [], {})}


def _told(one: Checkpoint) -> dict[str, Any]:
    """What the runner noted of a step: its number, and where it came from."""
    told = one.metadata if isinstance(one.metadata, dict) else {}
    number, source = told.get("step"), told.get("source")
    return {"number": number if type(number) is int else None, "source": source if isinstance(source, str) else None}


def _versions(one: Checkpoint) -> dict[str, str]:
    versions: object = one.versions  # another program may have written anything
    return {name: value for name, value in versions.items() if isinstance(value, str)} if isinstance(versions, dict) else {}


def changed(one: Checkpoint, parent: Checkpoint | None) -> list[str]:
    """The channels that a step changed, all of a step whose parent is not known; those that steer the graph come last."""
    before: Mapping[str, str] = {} if parent is None else _versions(parent)
    names = [name for name, version in _versions(one).items() if before.get(name) != version]
    return sorted(names, key=lambda name: (name.startswith(_STEERING), name))


# -- one step


def _loaded(visit: Visit) -> Loaded:
    id, step, namespace = visit.values["id"], visit.values["step"], visit.query.get("namespace", "")
    return found(visit.tx.checkpoints.states.find(id, namespace=namespace, id=step), "checkpoint", step)


def step(visit: Visit) -> dict[str, Any]:
    """A step with the values of its channels, those that it changed first, and what tasks wrote after it."""
    loaded, states = _loaded(visit), visit.tx.checkpoints.states
    one = loaded.checkpoint
    parents = states.page(thread_id=one.thread_id, namespace=one.namespace, id=one.parent_id, limit=1) if one.parent_id else []
    names = changed(one, parents[0] if parents else None)
    rest = sorted(set(_versions(one)) - set(names))
    values = {name: shown(stored) for name, stored in loaded.values.items()}
    return {
        "title": f"Step {_told(one)['number']}" if _told(one)["number"] is not None else one.id,
        "step": one,
        **_told(one),
        "changed": [(name, name in values, values.get(name)) for name in names],
        "others": [(name, name in values, values.get(name)) for name in rest],
        "writes": [(write.task_id, write.channel, shown_blob(write.value)) for write in loaded.writes[:MOST_ROWS]],
        "writes_left": max(0, len(loaded.writes) - MOST_ROWS),
        "parent": parents[0] if parents else None,
    }


def step_json(visit: Visit) -> Answer:
    """The step as `persist checkpoints show --json` has it among its checkpoints."""
    return Answer(_loaded(visit).checkpoint.model_dump(mode="json", exclude={"head"}))


def graph_json(visit: Visit) -> Answer:
    """What `persist checkpoints show --json` prints."""
    namespace = visit.query.get("namespace") if "namespace" in visit.query else None
    about = {"thread": visit.values["id"], "namespace": namespace, "limit": visit.number("limit", ROWS, 1_000)}
    return checkpoints.answer("show", visit.tx, **about)
