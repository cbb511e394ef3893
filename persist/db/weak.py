"""A set of objects that may vanish, which any thread may list while others add to it: weakref.WeakSet may not be."""

from typing import Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class WeakGroup(Generic[T]):
    """Its members are known by identity, and kept alive by others."""

    def __init__(self) -> None:
        self._members: WeakValueDictionary[int, T] = WeakValueDictionary()

    def add(self, member: T) -> None:
        """Put it in."""
        self._members[id(member)] = member

    def discard(self, member: T) -> None:
        """Take it out, if it is in."""
        self._members.pop(id(member), None)

    def __contains__(self, member: object) -> bool:
        return self._members.get(id(member)) is member

    def members(self) -> list[T]:
        """Those that are in it now."""
        known = [reference() for reference in self._members.valuerefs()]  # the references are copied at once
        return [member for member in known if member is not None]
