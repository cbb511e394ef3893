"""One call with spoilt arguments, in a transaction that is undone: what came of it, and what it left behind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Table

from persist.errors import PayloadTooLarge, PersistError, TransactionAborted
from persist.schema.metadata import domain_of, metadata
from tests.statemachines.bad_arguments import Hostile
from tests.statemachines.both_databases import Undo, alike, plain, rows
from tests.statemachines.scene import Verb, arguments
from tests.unit.json_values import normal

EVENTS = ("event_log", "event_heads")


@dataclass
class Found:
    """What a call did."""

    outcome: Any
    after: dict[str, list[Any]]
    problems: list[str] = field(default_factory=list)


def tables_of(domain: str) -> list[Table]:
    """What a verb of the domain may write to: its own tables, those of usage, to which it may report, and the log."""
    return [table for table in metadata.sorted_tables if domain_of(table) in (domain, "events", "usage")]


class Place:
    """A store of either face that holds the scene, and what is in its tables."""

    def __init__(self, store: Any, ids: Mapping[str, Any]) -> None:
        self.store, self.ids = store, ids
        self._before: dict[str, dict[str, list[Any]]] = {}

    def __repr__(self) -> str:
        return repr(self.store)

    def before(self, domain: str) -> dict[str, list[Any]]:
        """The rows of a domain as the scene has them."""
        if domain not in self._before:
            with self.store.read() as tx:
                self._before[domain] = rows(work_of(tx), tables_of(domain))
        return self._before[domain]

    def attempt(self, verb: Verb, spoilt: Mapping[str, Hostile]) -> Found:
        """Call it with valid arguments but for these, and undo whatever it did."""
        before = self.before(verb.domain) if spoilt else {}
        alike(self.store)
        given = arguments(verb, self.ids)
        for name, hostile in spoilt.items():
            given[name] = hostile.spoil(given[name])
        found = Found(None, {})
        try:
            with self.store.begin() as tx:
                self._call(tx, verb, given, spoilt, before, found)
                raise Undo
        except Undo:
            return found

    def _call(
        self,
        tx: Any,
        verb: Verb,
        given: Mapping[str, Any],
        spoilt: Mapping[str, Hostile],
        before: dict[str, list[Any]],
        found: Found,
    ) -> None:
        refused = True
        try:
            found.outcome = plain(verb.call(tx, given))
            refused = False
        except PersistError as error:
            found.outcome = type(error).__name__
        except Exception as error:
            found.outcome = type(error).__name__
            if "the caller's own" not in str(error):
                found.problems.append(f"a bare {type(error).__name__}: {str(error)[:200]}")
        if not spoilt:  # what valid arguments write is told by the contract tests
            return
        try:
            found.after = rows(work_of(tx), tables_of(verb.domain))
            tx.chat.sessions.list(limit=1)
        except Exception as error:
            if found.outcome == PayloadTooLarge.__name__ and isinstance(error, TransactionAborted):
                return  # the length of a column may be found out after a verb's first write: then all of it rolls back
            found.problems.append(f"the transaction cannot be used any more: {found.outcome}, then {type(error).__name__}")
        else:
            if refused and found.after != before:
                found.problems.append(f"refused with {found.outcome}, and yet something was written")
            if not refused:
                found.problems += [
                    f"{name} is not kept as it was given" for name in spoilt if not _kept(name, given[name], before, found.after)
                ]


def _kept(name: str, value: Any, before: dict[str, list[Any]], after: dict[str, list[Any]]) -> bool:
    """Whether text or JSON that went into a column of the parameter's name is in one of the rows that are new; or none are."""
    column = name if type(value) is str else f"{name}_json"
    if type(value) not in (str, list, dict) or name == "status" or name.endswith("_id"):  # these also find rows
        return True
    new = [row for table, rows in after.items() for row in rows if row not in before[table] and column in row]
    wanted, stored = plain(normal(value)), [row[column] for row in new]
    if isinstance(wanted, dict):  # a verb may add keys of its own
        return not new or any(isinstance(one, dict) and wanted.items() <= one.items() for one in stored)
    return not new or wanted in stored


def compare(places: Sequence[Place], verb: Verb, spoilt: Mapping[str, Hostile]) -> tuple[list[str], str | None]:
    """Call it everywhere -> what is wrong, a sentence each, and the type of the error where it was refused."""
    said = f"{verb.name}({', '.join(f'{name}={hostile}' for name, hostile in spoilt.items())})"
    found = [place.attempt(verb, spoilt) for place in places]
    problems = [f"{said} on {place}: {problem}" for place, one in zip(places, found, strict=True) for problem in one.problems]
    first = found[0]
    for place, one in zip(places[1:], found[1:], strict=True):
        if one.outcome != first.outcome:
            problems.append(f"{said}: {_short(first.outcome)} on {places[0]}, and {_short(one.outcome)} on {place}")
        elif one.after != first.after:
            tables = [name for name in first.after if first.after[name] != one.after.get(name)]
            problems.append(f"{said}: the rows of {', '.join(tables)} differ between {places[0]} and {place}")
    return problems, first.outcome if isinstance(first.outcome, str) else None


def _short(outcome: Any) -> str:
    return outcome if isinstance(outcome, str) else repr(outcome)[:300]


def work_of(tx: Any) -> Any:
    """The unit of work below a transaction of either face."""
    target = getattr(tx, "_target", tx)
    return getattr(target._work, "work", target._work)
