"""Storing all values that a checkpoint contains, also those not in `new_versions` or whose version already has another value."""

import json
from collections.abc import Mapping
from typing import Any

from persist.checkpoints.schemas import Stored
from persist.store.transaction import Transaction

_MAX = 1024
_OF, _AT = "of", "at"

ThreadKey = tuple[str, str]
"""(thread id, namespace)."""


class KnownVersions:
    """The versions that a saver stored or read last, by thread and namespace: it need not query for them before a put."""

    def __init__(self) -> None:
        self._versions: dict[ThreadKey, Mapping[str, str]] = {}

    def note(self, thread_key: ThreadKey, versions: Mapping[str, str]) -> None:
        """Remember that these channels' values are stored at these versions. The 1024 latest threads are kept."""
        self._versions.pop(thread_key, None)
        self._versions[thread_key] = versions
        for oldest in list(self._versions)[:-_MAX]:
            self._versions.pop(oldest, None)

    def of(self, thread_key: ThreadKey) -> Mapping[str, str]:
        """The versions noted last, {} if there are none."""
        return self._versions.get(thread_key, {})

    def forget(self) -> None:
        """Forget all versions, because stored ones may have been deleted."""
        self._versions.clear()


class CheckpointPut:
    """A checkpoint to store: the arguments of `states.put`, and values that may already be stored at their versions."""

    def __init__(
        self,
        thread_key: ThreadKey,
        id: str,
        arguments: dict[str, Any],
        carried: Mapping[str, Stored],
        known_versions: Mapping[str, str],
    ) -> None:
        self.thread_key, self.id = thread_key, id
        self._arguments, self._carried = arguments, carried
        self._known_versions = known_versions
        self.stored: Mapping[str, str] = {}

    def run(self, tx: Transaction) -> None:
        """Store the checkpoint and set `stored`: the versions at which its values are stored."""
        thread_id, namespace = self.thread_key
        states, arguments = tx.checkpoints.states, self._arguments
        versions, values = dict(arguments["versions"]), dict(arguments["values"])
        named = {channel: versions[channel] for channel in self._carried if channel in versions}
        found = states.values(thread_id, named, namespace=namespace) if named else {}
        self.stored = {**self._known_versions, **named}
        for channel, value in self._carried.items():
            if channel in named and channel not in found:
                values[channel] = named[channel], value
            elif channel not in named or found[channel] != value:
                own_version = {_AT: self.id} | ({_OF: json.loads(named[channel])} if channel in named else {})
                self.stored = {name: version for name, version in self.stored.items() if name != channel}
                versions[channel] = json.dumps(own_version)
                values[channel] = versions[channel], value
        states.put(thread_id, self.id, namespace=namespace, **{**arguments, "versions": versions, "values": values})


def version_of(stored: str) -> tuple[bool, Any]:
    """(whether the runner gave the channel a version, that version). ValueError for text that is no version.

    A value without a version of the runner's is stored at one made from its checkpoint's id.
    """
    version = json.loads(stored)
    named = True
    if isinstance(version, dict):
        named, version = _OF in version, version.get(_OF)
    if named and not isinstance(version, str | int | float):
        raise ValueError("neither text nor a number")
    return named, version
