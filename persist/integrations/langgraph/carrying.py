"""Storing all values that a checkpoint contains, also those not in `new_versions` or whose version already has another value."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from persist.checkpoints.known_lists import KnownList
from persist.checkpoints.schemas import Stored
from persist.checkpoints.storing import NewState, extend, growing, new_state, store, thread_key
from persist.checkpoints.validation import versions_of
from persist.checkpoints.values import read_values
from persist.db.transactions.repository import Repository, writes
from persist.db.transactions.unit_of_work import UnitOfWork

_MAX = 1024
_OF, _AT = "of", "at"

ThreadKey = tuple[str, str]
"""(thread id, namespace)."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a saver stored or read last of a thread and namespace, by channel: versions, and how lists are stored."""

    versions: Mapping[str, str]
    lists: Mapping[str, KnownList]


_NOTHING = Known({}, {})


class KnownThreads:
    """What a saver stored or read last, by thread and namespace: it need not query for that before a put."""

    def __init__(self) -> None:
        self._known: dict[ThreadKey, Known] = {}

    def note(self, thread_key: ThreadKey, known: Known) -> None:
        """Remember what is stored. The 1024 latest threads are kept."""
        self._known.pop(thread_key, None)
        self._known[thread_key] = known
        for oldest in list(self._known)[:-_MAX]:
            self._known.pop(oldest, None)

    def of(self, thread_key: ThreadKey) -> Known:
        """What was noted last."""
        return self._known.get(thread_key, _NOTHING)

    def forget(self) -> None:
        """Forget everything, because what is stored may have been deleted."""
        self._known.clear()


class CheckpointPut:
    """A checkpoint to store: the arguments of `states.put`, and values that may already be stored at their versions.

    known    what the saver knew to be stored when the put began
    carried  the values that are not new, and of which it did not know that they are stored at their versions
    """

    def __init__(
        self,
        thread_key: ThreadKey,
        id: str,
        arguments: dict[str, Any],
        carried: Mapping[str, Stored],
        known_versions: Mapping[str, str],
        known: Known,
    ) -> None:
        self.thread_key, self.id = thread_key, id
        self._arguments, self._carried = arguments, carried
        self._known_versions = known_versions
        self._lists, self._may_extend = known.lists, not carried
        self.stored = _NOTHING
        """What is stored of the thread after the put."""

    def run(self, work: UnitOfWork) -> bool:
        """Store the checkpoint, and set `stored`. False: the lists were not as known, so nothing is stored; run it again."""
        return SaverPuts(work).put(self)

    def execute(self, work: UnitOfWork) -> bool:
        """What `run` does, as a part of a verb."""
        new, versions = self._carrying(work)
        lists = growing(new, self._lists) if self._may_extend and work.is_alone else None
        stored = store(work, new) if lists is None else extend(work, new, lists)
        if stored is None:
            self._may_extend = False
            return False
        self.stored = Known(versions, {**self._lists, **stored})
        return True

    def _carrying(self, work: UnitOfWork) -> tuple[NewState, Mapping[str, str]]:
        """The checkpoint with the carried values that have to be stored, and the versions at which its values are stored then."""
        thread_id, namespace = self.thread_key
        arguments = self._arguments
        versions, values = dict(arguments["versions"]), dict(arguments["values"])
        named = {channel: versions[channel] for channel in self._carried if channel in versions}
        found = read_values(work, thread_key(work, thread_id, namespace), versions_of(work, named)) if named else {}
        at = {**self._known_versions, **named}
        for channel, value in self._carried.items():
            if channel in named and channel not in found:
                values[channel] = named[channel], value
            elif channel not in named or found[channel] != value:
                own_version = {_AT: self.id} | ({_OF: json.loads(named[channel])} if channel in named else {})
                at.pop(channel, None)
                versions[channel] = json.dumps(own_version)
                values[channel] = versions[channel], value
        return new_state(
            work, thread_id, self.id, namespace=namespace, **{**arguments, "versions": versions, "values": values}
        ), at


class SaverPuts(Repository):
    """The verb that PersistSaver stores checkpoints with."""

    @writes
    def put(self, given: CheckpointPut) -> bool:
        """Store a checkpoint; see CheckpointPut.run."""
        self._work.begin_event("CheckpointStates.put")
        return given.execute(self._work)


def version_of(stored: str) -> tuple[bool, Any]:
    """(whether the runner gave the channel a version, that version). Raises ValueError for text that is no version.

    A value without a version of the runner's is stored at one made from its checkpoint's id.
    """
    version = json.loads(stored)
    named = True
    if isinstance(version, dict):
        named, version = _OF in version, version.get(_OF)
    if named and not isinstance(version, str | int | float):
        raise ValueError("neither text nor a number")
    return named, version
