"""Artifacts in numbered versions, and memories that are found by words."""

from typing import Any

from persist.framework_state.app_sessions.schemas import ArtifactKey, NewMemory
from persist.testing import FrozenClock

FILE = ArtifactKey("app", "u", "s", "f")
HARD = '{"b":NaN,"a":"\\u0000 \\ud83d"}'


def save(store: Any, key: ArtifactKey = FILE, part: str = "{}", **given: Any) -> int:
    with store.begin() as tx:
        number: int = tx.app_sessions.artifacts.save(key, part, **given)
        return number


def remember(store: Any, *memories: NewMemory, session_id: str = "s", verb: str = "add", user: str = "u") -> None:
    getattr(store.app_sessions.memories, verb)("app", user, session_id, memories)


def search(store: Any, *words: str, limit: int = 10) -> list[tuple[str, int]]:
    return [(one.id, one.matches) for one in store.app_sessions.memories.search("app", "u", words, limit=limit)]


def memory(id: str, text: str) -> NewMemory:
    return NewMemory(id, f'"{id}"', text, text.split())


def test_versions_are_numbered_from_0_and_read_as_they_were_saved(store: Any, clock: FrozenClock) -> None:
    assert save(store, part=HARD, data=b"\x00\xff", mime_type="a\x00/b", metadata=HARD) == 0
    clock.advance(seconds=1)
    assert save(store, data=b"") == 1
    assert save(store) == 2
    files = store.app_sessions.artifacts
    first, second, third = (files.load(FILE, number) for number in range(3))
    assert (first.part, first.data, first.version.mime_type, first.version.metadata) == (HARD, b"\x00\xff", "a\x00/b", HARD)
    assert (second.data, second.version.mime_type, second.version.metadata, third.data) == (b"", None, "{}", None)
    assert files.load(FILE) == third
    assert files.versions(FILE) == [first.version, second.version, third.version]
    assert second.version.created_at == clock()
    assert (files.load(FILE, 3), files.load(ArtifactKey("app", "u", "s", "other"))) == (None, None)


def test_names_of_the_session_and_of_the_user(store: Any) -> None:
    for key in (FILE, ArtifactKey("app", "u", "t", "g"), ArtifactKey("app", "u", None, "f"), ArtifactKey("app", "v", None, "h")):
        assert save(store, key) == 0
    names = store.app_sessions.artifacts.names
    of_user = [ArtifactKey("app", "u", None, "f")]
    assert [names("app", "u"), names("app", "u", "s"), names("x", "u")] == [of_user, [*of_user, FILE], []]


def test_a_deleted_artifact_begins_anew(store: Any, raw: Any) -> None:
    save(store)
    save(store)
    for name in ("other", "bare"):
        save(store, ArtifactKey("app", "u", "s", name))
    raw.rows("DELETE FROM app_artifact_versions WHERE artifact_id = (SELECT id FROM app_artifacts WHERE filename = 'bare')")
    with store.begin() as tx:
        assert tx.app_sessions.artifacts.delete(FILE)
        assert not tx.app_sessions.artifacts.delete(FILE)
    assert (raw.count("app_artifacts"), raw.count("app_artifact_versions")) == (2, 1)
    assert save(store) == 0


def test_a_search_finds_the_memories_with_most_words(store: Any) -> None:
    remember(store, memory("one", "hello big world"), memory("two", "hello"), memory("three", "big_world a%b"))
    remember(store, memory("four", "big world"), session_id="t")
    remember(store, memory("five", "hello"), user="other")
    assert search(store, "hello", "world") == [("one", 2), ("two", 1), ("four", 1)]
    assert search(store, "hell", "orld", "bigxworld", "a", "a%") == []
    assert search(store, "a%b", "big_world") == [("three", 2)]
    assert search(store, "world", limit=1) == [("one", 1)]
    assert search(store) == []


def test_words_of_other_scripts_are_found_inside_of_words(store: Any) -> None:
    remember(store, memory("one", "私はpythonを使う naïve"))
    assert search(store, "使う", "私", "naïv") == [("one", 3)]
    assert search(store, "python") == []


def test_a_long_question_counts_all_its_words(store: Any) -> None:
    words = [f"word{number}" for number in range(130)] + [f"wörd{number}" for number in range(70)]
    remember(store, memory("all", " ".join(words)), memory("some", "word3 word129 wörd69"))
    assert search(store, *words) == [("all", 200), ("some", 4)]  # one of them is wörd6, which is a part of wörd69


def test_a_session_that_is_added_again_replaces_itself(store: Any, clock: FrozenClock) -> None:
    remember(store, memory("1", "a"), memory("2", "a"), verb="replace")
    remember(store, memory("3", "a"), session_id="t")
    remember(store, memory("2", "a"), memory("4", "a"), memory("1", "b"), verb="replace")
    assert search(store, "a") == [("2", 1), ("4", 1), ("3", 1)]
    remember(store, memory("2", "b"), memory("5", "a"))
    assert search(store, "a") == [("2", 1), ("4", 1), ("5", 1), ("3", 1)]
    remember(store, verb="replace")
    assert search(store, "a") == [("3", 1)]


def test_what_was_deleted_is_not_remembered_again(store: Any) -> None:
    remember(store, memory("1", "a"), memory("2", "a"))
    remember(store, memory("1", "a"), session_id="t")
    with store.begin() as tx:
        assert tx.app_sessions.memories.delete("app", "u", "1")
        assert not tx.app_sessions.memories.delete("app", "u", "1")
        assert not tx.app_sessions.memories.delete("app", "u", "unknown")
    for verb in ("add", "replace"):
        remember(store, memory("1", "a"), memory("2", "a"), verb=verb)
        remember(store, memory("1", "a"), verb=verb, session_id="new")
    assert search(store, "a") == [("2", 1)]
