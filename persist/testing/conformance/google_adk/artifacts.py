"""Checks of an artifact service of Google ADK. `make()` returns a service; all of them are over one storage."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from google.adk.errors.input_validation_error import InputValidationError
from google.genai import types

from persist.testing.conformance.running import NotConformant, cancel_after, expect, expect_error, new_id

Make = Callable[[], Any]
Check = Callable[[Make], Awaitable[None]]


def _names(filename: str = "f.txt", **more: Any) -> dict[str, Any]:
    return {"app_name": new_id("app"), "user_id": "maria", "session_id": "s", "filename": filename, **more}


def _text(text: str) -> Any:
    return types.Part(text=text)


def _scope(names: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in names.items() if name != "filename"}


async def an_unknown_artifact_is_nothing(make: Make) -> None:
    """What nobody saved is None or empty, and deleting it does nothing."""
    names = _names()
    expect(None, await make().load_artifact(**names), "There is no artifact that nobody saved.")
    expect([], await make().list_versions(**names), "An artifact that nobody saved has no versions.")
    expect(None, await make().get_artifact_version(**names), "Nothing is known of an artifact that nobody saved.")
    expect([], await make().list_artifact_keys(**_scope(names)), "Nobody saved an artifact there.")
    await make().delete_artifact(**names)


async def versions_count_from_zero(make: Make) -> None:
    """Versions are numbered from 0 on, the latest is loaded without a number, and each by its own."""
    names = _names()
    saved = [await make().save_artifact(**names, artifact=_text(text)) for text in "abc"]
    expect([0, 1, 2], saved, "Versions are numbered from 0 on.")
    expect([0, 1, 2], await make().list_versions(**names), "All versions are listed.")
    expect(_text("c"), await make().load_artifact(**names), "The latest version is loaded without a number.")
    for number, text in enumerate("abc"):
        expect(_text(text), await make().load_artifact(**names, version=number), "A version is loaded by its number.")
    expect(None, await make().load_artifact(**names, version=3), "There is no version that nobody saved.")


async def parts_come_back_exactly(make: Make) -> None:
    """Text, bytes and references to files come back as they were saved."""
    parts = [
        _text('line\u2028separator, quote", back\\slash, \xe9, e\u0301, \U0001f600, \ufeff, %s'),
        types.Part(inline_data=types.Blob(mime_type="image/png", data=bytes(range(256)) * 2000)),
        types.Part(file_data=types.FileData(file_uri="gs://bucket/file", mime_type="text/csv")),
    ]
    names = _names()
    for part in parts:
        await make().save_artifact(**names, artifact=part)
    found = [await make().load_artifact(**names, version=number) for number in range(len(parts))]
    expect(parts, found, "Parts come back as they were saved.")


async def versions_have_a_type_and_metadata(make: Make) -> None:
    """A version has the type of its content and the metadata that it was saved with."""
    names = _names()
    blob = types.Part(inline_data=types.Blob(mime_type="image/png", data=b"x"))
    await make().save_artifact(**names, artifact=blob, custom_metadata={"z": 1, "a": ["é"]})
    await make().save_artifact(**names, artifact=_text("b"))
    first, last = await make().list_artifact_versions(**names)
    expect((0, "image/png", {"z": 1, "a": ["é"]}), (first.version, first.mime_type, first.custom_metadata), "A version has both.")
    expect((1, "text/plain", {}), (last.version, last.mime_type, last.custom_metadata), "Text has its type.")
    named = [await make().get_artifact_version(**names, version=number) for number in (0, None, 7)]
    expect([first, last, None], named, "A version is described by its number, the latest one without it.")


async def artifacts_belong_to_a_session_or_a_user(make: Make) -> None:
    """An artifact whose name begins with `user:` is there in all sessions of the user; any other in its session alone."""
    names, app = _names("own.txt"), new_id("app")
    own, users = {**names, "app_name": app}, {**names, "app_name": app, "filename": "user:all.txt"}
    await make().save_artifact(**own, artifact=_text("own"))
    await make().save_artifact(**users, artifact=_text("all"))
    for session in ("s", "other"):
        expect(_text("all"), await make().load_artifact(**{**users, "session_id": session}), "It is there in all sessions.")
    expect(None, await make().load_artifact(**{**own, "session_id": "other"}), "It is there in its session alone.")
    for other in ({"user_id": "otto"}, {"app_name": new_id("app")}):
        for mine in (own, users):
            expect(None, await make().load_artifact(**{**mine, **other}), "Users and applications are apart.")


async def names_are_listed(make: Make) -> None:
    """The names of a session's artifacts and of the user's are listed, sorted, each once."""
    names = _names()
    for filename in ("b.txt", "user:c.txt", "a.txt", "b.txt", "A.txt"):
        await make().save_artifact(**{**names, "filename": filename}, artifact=_text(filename))
    await make().save_artifact(**{**names, "session_id": "other"}, artifact=_text("x"))
    expected = ["A.txt", "a.txt", "b.txt", "user:c.txt"]
    expect(expected, await make().list_artifact_keys(**_scope(names)), "The session's names and the user's are listed.")


async def a_deleted_artifact_is_gone(make: Make) -> None:
    """Deleting an artifact deletes all of its versions, and no other artifact."""
    names, other = _names(), _names()
    for one in (names, names, other):
        await make().save_artifact(**one, artifact=_text("a"))
    await make().delete_artifact(**names)
    expect(None, await make().load_artifact(**names), "A deleted artifact is gone.")
    expect([], await make().list_versions(**names), "A deleted artifact has no versions.")
    expect(_text("a"), await make().load_artifact(**other), "Others stay.")


async def what_holds_nothing_is_refused(make: Make) -> None:
    """A part that has neither text nor bytes nor a reference is refused, and no version is saved."""
    names = _names()
    saving = make().save_artifact(**names, artifact=types.Part(function_call=types.FunctionCall(name="f")))
    await expect_error(InputValidationError, saving, "A part that holds nothing is no artifact.")
    expect([], await make().list_versions(**names), "What is refused is not saved.")


async def versions_that_are_saved_at_once_differ(make: Make) -> None:
    """If many tasks save versions at once, every version gets its own number and keeps its content."""
    names = _names()
    saved = await asyncio.gather(*(make().save_artifact(**names, artifact=_text(f"{number}")) for number in range(8)))
    expect(list(range(8)), sorted(saved), "No number is given twice.")
    for number, version in enumerate(saved):
        expect(_text(f"{number}"), await make().load_artifact(**names, version=version), "A version is what was saved.")


async def a_cancelled_save_is_whole_or_absent(make: Make) -> None:
    """After a cancelled save the version is there wholly or not at all, and the next one has the next number."""
    for turns in range(12):
        names = _names()
        await cancel_after(turns, make().save_artifact(**names, artifact=_text("a")))
        versions = await make().list_versions(**names)
        found = await make().load_artifact(**names)
        if (versions, found) not in (([], None), ([0], _text("a"))):
            raise NotConformant("A cancelled save is done wholly or not at all.", ([0], _text("a")), (versions, found))
        expect(len(versions), await make().save_artifact(**names, artifact=_text("b")), "The next version has the next number.")


ARTIFACT_CHECKS: tuple[Check, ...] = (
    an_unknown_artifact_is_nothing,
    versions_count_from_zero,
    parts_come_back_exactly,
    versions_have_a_type_and_metadata,
    artifacts_belong_to_a_session_or_a_user,
    names_are_listed,
    a_deleted_artifact_is_gone,
    what_holds_nothing_is_refused,
    versions_that_are_saved_at_once_differ,
    a_cancelled_save_is_whole_or_absent,
)
"""The checks of an artifact service, in the order in which a failure tells the most."""
