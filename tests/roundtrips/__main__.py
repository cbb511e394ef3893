"""`python -m tests.roundtrips` counts the round trips of every call and prints them beside their bounds.

With `--lower` it writes each lower count into tests/roundtrips/bounds.csv. With `--page` it only writes docs/round-trips.md from
these. With words, it counts only the calls whose names have
one of them in it, and prints the statements of each round trip.
"""

import sys
from collections.abc import Iterator

from persist.schema.migrate import upgrade
from tests.database_pool import Databases
from tests.databases import postgres_server
from tests.roundtrips import bounds
from tests.roundtrips.calls import EVERYDAY, by_domain, counted
from tests.roundtrips.meter import listed
from tests.roundtrips.page import PAGE, page
from tests.roundtrips.proxy import Flight


def main(arguments: list[str]) -> None:
    if "--page" in arguments:
        PAGE.write_text(page(bounds.BOUNDS), encoding="utf-8")
        return
    words = [word for word in arguments if word != "--lower"]
    with postgres_server() as server:
        databases = Databases(server, upgrade)
        found = dict(_count(databases, words))
        databases.close()
    for name, flights in found.items():
        row = bounds.BOUNDS.get(name, bounds.Row(name, -1))
        print(f"{name:58} count {len(flights):2}  bound {row.bound:2}  goal {row.goal}")
        if words:
            print(listed(flights))
    if "--lower" in arguments:
        bounds.lower({name: len(flights) for name, flights in found.items()})


def _count(databases: Databases, words: list[str]) -> Iterator[tuple[str, list[Flight]]]:
    """Each wanted call and the fewest round trips that it was seen to take."""

    def wanted(name: str) -> bool:
        return not words or any(word in name for word in words)

    for domain, all_verbs in {**by_domain(), "": []}.items():
        verbs = [verb for verb in all_verbs if wanted(verb.name)]
        everyday = [name for name in EVERYDAY if not domain and wanted(name)]
        if verbs or everyday:
            url = databases.create()
            with counted(url, log=domain == "events") as calls:
                yield from ((verb.name, calls.verb(verb, bound=0)) for verb in verbs)
                yield from ((name, calls.everyday(name, bound=0)) for name in everyday)
            databases.drop(url)


if __name__ == "__main__":
    main(sys.argv[1:])
