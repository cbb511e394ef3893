"""Every verb that writes has a word for what it does, and every word belongs to something that writes."""

import inspect
import re
from typing import Any

from persist import Store
from persist.chat.recording.flush import Flush
from persist.events.schemas import SNAPSHOT, SNAPSHOT_CONTINUED, TYPES
from tests.architecture.sources import ROOT
from tests.cases import each

OWN = {"Events.append", "Events.trim", "Blobs._put", "Blobs._stage", "Blobs.delete"}
OWN |= {f"Consumers.{verb}" for verb in ("create", "next", "ack", "remove")}
"""What the caller says the event is called; what concerns the log and its readers alone; and blobs, which are no part of it."""

ELSEWHERE = ("SessionItems.",)
"""Verbs that are loaded together with a framework; the tests of the integrations look at them."""


def verbs() -> dict[str, bool]:
    """Every verb of every repository by its name in a deed, and whether it writes."""
    found = {}
    with Store.open("sqlite:///:memory:") as store, store.begin() as tx:
        for domain in (name for name in dir(tx) if not name.startswith("_")):
            aggregate = getattr(tx, domain)
            repositories = [aggregate, *(getattr(aggregate, name) for name in dir(aggregate) if not name.startswith("_"))]
            for repository in repositories:
                for _, member in inspect.getmembers(type(repository), inspect.isfunction):
                    wrapper: Any = inspect.getclosurevars(member).nonlocals
                    if "writes" in wrapper:
                        found[member.__qualname__] = bool(wrapper["writes"])
    return found


VERBS = verbs()


def test_the_walk_finds_verbs_of_every_domain() -> None:
    classes = {name.partition(".")[0] for name in VERBS}
    assert {"ChatSessions", "Runs", "MessagingMessages", "Branches", "Tasks", "ProgramRuns", "Events"} <= classes
    assert VERBS["ChatSessions.create"]
    assert not VERBS["ChatSessions.get"]


@each("verb", sorted(name for name, writes in VERBS.items() if writes))
def test_a_verb_that_writes_has_a_word(verb: str) -> None:
    assert (verb in TYPES) != (verb in OWN)


@each("name", sorted(name for name in TYPES if name[0].isupper() and not name.startswith(ELSEWHERE)))
def test_a_word_belongs_to_a_verb_that_writes(name: str) -> None:
    assert VERBS.get(name) is True


def test_what_a_recorder_says_it_did_stands_for_itself() -> None:
    said = {name for name in TYPES if not name[0].isupper()}
    assert {TYPES[name] for name in said} == said
    said -= {"budget.warned", "budget.exceeded"}  # what calls of any verb lead to
    source = inspect.getsource(inspect.getmodule(Flush) or Flush)
    assert all(f'"{name}"' in source or name == "usage.recorded" for name in said)


def test_the_page_of_the_log_names_every_word() -> None:
    """There `.deleted` is of the thing before it, and `task.*` are all words of a thing."""
    table = (ROOT / "docs/events.md").read_text(encoding="utf-8").partition("| thing | types |")[2].partition("\n\n")[0]
    said, thing = set[str](), ""
    for word in re.findall(r"`([a-z_]*\.[a-z_*]+)`", table):
        thing = word.partition(".")[0] or thing
        said.add(f"{thing}.{word.partition('.')[2]}")
    assert [word for word in sorted({*TYPES.values()}) if not said & {word, f"{word.partition('.')[0]}.*"}] == []


def test_no_word_is_the_logs_own() -> None:
    assert {SNAPSHOT, SNAPSHOT_CONTINUED}.isdisjoint(TYPES.values())


def test_words_are_a_thing_and_what_became_of_it() -> None:
    assert [word for word in TYPES.values() if word.count(".") != 1 or not word.replace(".", "").replace("_", "").islower()] == []
