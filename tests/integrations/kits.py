"""What the tests of the conformance kits share: whole runs, and faulty stores that each fail the checks they are made for."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from persist.testing.conformance import run
from persist.testing.conformance.running import is_beyond

Do = Callable[[Awaitable[Any]], Any]
Checks = Iterable[Callable[[Any], Awaitable[None]]]


def require_all(do: Do, checks: Checks, make: Any) -> None:
    """Every check passes."""
    report = do(run(checks, make))
    report.raise_failures()
    assert report.passed == tuple(check.__name__ for check in checks)


def require_all_but_beyond(do: Do, checks: Checks, make: Any) -> None:
    """The framework's own store passes all checks but those that ask for more than it does, and fails each of these."""
    report = do(run(checks, make))
    beyond = {check.__name__ for check in checks if is_beyond(check)}
    assert report.failed.keys() == beyond == report.beyond, str(report)


def require_faults_found(do: Do, checks: Checks, faults: Mapping[str, Callable[[], Any]], *already: str) -> None:
    """A store that is made for the name of a check fails it. `already`: what the framework's own store fails."""
    by_name: Any = {check.__name__: check for check in checks}
    assert by_name.keys() == {*faults, *already}
    for name, kind in faults.items():
        store = kind()
        report = do(run([by_name[name]], lambda *session, store=store: store(*session) if session else store))
        assert list(report.failed) == [name], name
