"""Storing all values that a checkpoint contains, also those not in `new_versions` or whose version already has another value."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from persist.checkpoints.known_lists import Addition, KnownList
from persist.checkpoints.schemas import Blob, Stored
from persist.checkpoints.states import CheckpointStates
from persist.checkpoints.storing import NewState, extend, growing, store
from persist.checkpoints.validation import check_blobs
from persist.checkpoints.values import KeptLists, Reading
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.integrations.langgraph.fingerprints import Fingerprint
from persist.integrations.langgraph.latest import Latest

_MOST_BYTES = 8 * 2**20
_OF, _AT = "of", "at"

ThreadKey = tuple[str, str]
"""(thread id, namespace)."""

Value = Stored | Addition | None


@dataclass(frozen=True, slots=True)
class Known:
    """What a saver stored or read last of a thread and namespace, by channel.

    versions      at which the channels' values are stored
    lists         how the latest lists are stored
    fingerprints  those of these lists, as far as they have one
    """

    versions: Mapping[str, str]
    lists: Mapping[str, KnownList]
    fingerprints: Mapping[str, Fingerprint]

    @property
    def size(self) -> int:
        """The bytes of memory that it takes, about."""
        return 700 + 400 * len(self.versions) + sum(known.size for known in self.lists.values())


NOTHING = Known({}, {}, {})


class KnownThreads:
    """What a saver stored or read last, by thread and namespace: it need not query for that before a put."""

    def __init__(self) -> None:
        self._known: Latest[ThreadKey, Known] = Latest(_MOST_BYTES)

    def note(self, thread_key: ThreadKey, known: Known) -> None:
        """Remember what is stored, of the latest threads."""
        self._known.put(thread_key, known, known.size)

    def of(self, thread_key: ThreadKey) -> Known:
        """What was noted last."""
        return self._known.get(thread_key) or NOTHING

    def forget(self) -> None:
        """Forget everything, because what is stored may have been deleted."""
        self._known.clear()


@dataclass(frozen=True, slots=True)
class Versions:
    """At which versions values are stored once a put is done.

    stored     those of the new values and of values that the saver knew to be stored
    relied_on  those of the latter
    """

    stored: Mapping[str, str]
    relied_on: Mapping[str, str]


class CheckpointPut:
    """A checkpoint to store: the arguments of `states.put`, and values that may already be stored at their versions.

    known         what the saver knew to be stored when the put began
    values        the new values, with their versions
    carried       the values that are not new, and of which it did not know that they are stored at their versions
    fingerprints  those of the new values that are lists, None for a list without one
    """

    def __init__(
        self,
        thread_key: ThreadKey,
        id: str,
        arguments: dict[str, Any],
        values: Mapping[str, tuple[str, Value]],
        carried: Mapping[str, Stored],
        versions: Versions,
        known: Known,
        fingerprints: Mapping[str, Fingerprint | None],
    ) -> None:
        self.thread_key, self.id, self.known = thread_key, id, known
        self._arguments, self._carried, self._values = arguments, carried, values
        self._versions, self._fingerprints = versions, fingerprints
        self.stored = NOTHING
        """What is stored of the thread after the put."""
        self.lists: Mapping[str, KnownList] = {}
        """How the lists among the new values are stored after the put."""

    def run(self, work: UnitOfWork) -> None:
        """Store the checkpoint, and set `stored`. Raises RequirementMissed if what is stored is not as known."""
        thread_id, namespace = self.thread_key
        versions, values, at = self._carrying(work)
        added = {channel: pair for channel, pair in values.items() if isinstance(pair[1], Addition)}
        given = {channel: pair for channel, pair in values.items() if channel not in added}
        states = SaverStates(work, {} if self._carried else self.known.lists, added, relies_on=self._versions.relied_on)
        states.put(thread_id, self.id, namespace=namespace, **{**self._arguments, "versions": versions, "values": given})
        self.lists = states.stored
        all_of = {**self.known.fingerprints, **{channel: self._fingerprints.get(channel) for channel in states.stored}}
        fingerprints = {channel: found for channel, found in all_of.items() if found is not None}
        self.stored = Known(at, {**self.known.lists, **states.stored}, fingerprints)

    def additions(self) -> Mapping[str, Addition]:
        """The lists among the new values that are known ones with something added."""
        return {channel: value for channel, (_, value) in self._values.items() if isinstance(value, Addition)}

    def pieces(self) -> Mapping[str, Sequence[Blob]]:
        """The other lists among the new values."""
        values = {channel: value for channel, (_, value) in self._values.items()}
        return {name: value for name, value in values.items() if value is not None and not isinstance(value, Addition | Blob)}

    def _carrying(self, work: UnitOfWork) -> tuple[dict[str, str], dict[str, tuple[str, Value]], dict[str, str]]:
        """All versions; the values to store, carried ones among them; and the versions at which values are stored then."""
        thread_id, namespace = self.thread_key
        versions, values = dict(self._arguments["versions"]), dict(self._values)
        named = {channel: versions[channel] for channel in self._carried if channel in versions}
        found = CheckpointStates(work).values(thread_id, named, namespace=namespace) if named else {}
        at = {**self._versions.stored, **named}
        for channel, value in self._carried.items():
            if channel in named and channel not in found:
                values[channel] = named[channel], value
            elif channel not in named or found[channel] != value:
                own_version = {_AT: self.id} | ({_OF: json.loads(named[channel])} if channel in named else {})
                at.pop(channel, None)
                versions[channel] = json.dumps(own_version)
                values[channel] = versions[channel], value
        return versions, values, at


class SaverStates(CheckpointStates):
    """`tx.checkpoints.states` of a saver, which knows how some lists are stored and adds to them without looking at them again.

    known      how it knows lists of the thread to be stored, by channel
    added      the new versions and values of channels whose lists only grew
    kept       lists that need not be read
    relies_on  the versions of other channels whose values it knows to be stored
    """

    def __init__(
        self,
        work: UnitOfWork,
        known: Mapping[str, KnownList],
        added: Mapping[str, tuple[str, Value]] | None = None,
        kept: KeptLists | None = None,
        relies_on: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(work)
        self._known, self._added, self._kept, self._relies_on = known, added or {}, kept, relies_on or {}
        self.stored: Mapping[str, KnownList] = {}
        """How the lists are stored after `put`."""

    def _store(self, new: NewState) -> None:
        work = self._work
        for channel, (version, value) in self._added.items():
            work.label("channel", channel, empty=True)
            work.label(f"values.{channel}.version", version, empty=True)
            if isinstance(value, Addition):
                check_blobs(f"values.{channel}", value.added)
        new = replace(new, values={**new.values, **self._added}, relies_on=self._relies_on)
        lists = growing(new, self._known) if work.is_alone else None
        self.stored = store(work, new) if lists is None else extend(work, new, lists)

    def _reading(self) -> Reading:
        return Reading(self._work, self._kept)


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
