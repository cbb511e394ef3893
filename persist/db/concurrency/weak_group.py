"""A set of weakly held objects that one thread may list while others add to it, which weakref.WeakSet does not allow."""

from typing import Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class WeakGroup(Generic[T]):
    """Holds its members weakly and tells them apart by identity."""

    def __init__(self) -> None:
        self._members: WeakValueDictionary[int, T] = WeakValueDictionary()

    def add(self, member: T) -> None:
        """Add a member."""
        self._members[id(member)] = member

    def discard(self, member: T) -> None:
        """Remove a member, if present."""
        self._members.pop(id(member), None)

    def __contains__(self, member: object) -> bool:
        return self._members.get(id(member)) is member

    def members(self) -> list[T]:
        """The members that are still alive."""
        members = [reference() for reference in self._members.valuerefs()]  # valuerefs() copies the list atomically
        return [member for member in members if member is not None]
