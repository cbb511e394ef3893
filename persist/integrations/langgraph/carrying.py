"""What a checkpoint carries is read back: also values that `new_versions` does not name, and versions that hold another value."""

import json
from collections.abc import Mapping
from typing import Any

from persist.checkpoints.schemas import Stored
from persist.transaction import Transaction

_MOST = 1024
_OF, _AT = "of", "at"

Place = tuple[str, str]
"""A thread and a namespace."""


class Known:
    """The versions that one saver stored or read last, by thread and namespace: what it need not look for before it puts."""

    def __init__(self) -> None:
        self._versions: dict[Place, Mapping[str, str]] = {}

    def note(self, place: Place, versions: Mapping[str, str]) -> None:
        """The values of these channels are stored at these versions."""
        self._versions.pop(place, None)
        self._versions[place] = versions
        for oldest in list(self._versions)[:-_MOST]:
            self._versions.pop(oldest, None)

    def of(self, place: Place) -> Mapping[str, str]:
        """What was noted last."""
        return self._versions.get(place, {})

    def forget(self) -> None:
        """Something was deleted."""
        self._versions.clear()


class Put:
    """The arguments of `states.put`, and the values of which only a look at the database says whether they are there."""

    def __init__(self, place: Place, id: str, arguments: dict[str, Any], carried: Mapping[str, Stored], sure: Mapping[str, str]):
        self.place, self.id = place, id
        self._arguments, self._carried = arguments, carried
        self._sure = sure
        self.stored: Mapping[str, str] = {}

    def run(self, tx: Transaction) -> None:
        """Store the checkpoint; `stored` says which versions hold its values then."""
        thread_id, namespace = self.place
        states, arguments = tx.checkpoints.states, self._arguments
        versions, values = dict(arguments["versions"]), dict(arguments["values"])
        named = {channel: versions[channel] for channel in self._carried if channel in versions}
        found = states.values(thread_id, named, namespace=namespace) if named else {}
        self.stored = {**self._sure, **named}
        for channel, value in self._carried.items():
            if channel in named and channel not in found:
                values[channel] = named[channel], value
            elif channel not in named or found[channel] != value:
                aside = {_AT: self.id} | ({_OF: json.loads(named[channel])} if channel in named else {})
                self.stored = {name: version for name, version in self.stored.items() if name != channel}
                versions[channel] = json.dumps(aside)
                values[channel] = versions[channel], value
        states.put(thread_id, self.id, namespace=namespace, **{**arguments, "versions": versions, "values": values})


def version_of(stored: str) -> tuple[bool, Any]:
    """Whether a channel has a version for its runner, and which: a value that no version names stands at its checkpoint's own.

    ValueError for what is no version.
    """
    version = json.loads(stored)
    named = True
    if isinstance(version, dict):
        named, version = _OF in version, version.get(_OF)
    if named and not isinstance(version, str | int | float):
        raise ValueError("neither text nor a number")
    return named, version
