"""The artifact service, and the same calls on the framework's in-memory service."""

from datetime import timedelta
from typing import Any

import pytest
from google.adk.artifacts import artifact_util
from google.adk.artifacts.base_artifact_service import BaseArtifactService
from google.adk.artifacts.in_memory_artifact_service import InMemoryArtifactService
from google.adk.errors.input_validation_error import InputValidationError
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st

from persist import Store
from persist.errors import InvalidValue
from persist.integrations.google_adk import PersistArtifactService
from persist.maintenance import prune
from tests.integrations.google_adk.scenes import ID, NAMES
from tests.integrations.kits import Do

OF_SESSION: dict[str, Any] = {**NAMES, "session_id": ID}
FILE: dict[str, Any] = {**OF_SESSION, "filename": "f"}
PARTS = [
    types.Part(text="Naïve\x00 \ud83d"),
    types.Part(text=""),
    types.Part(inline_data=types.Blob(data=bytes(range(256)), mime_type="image/png", display_name="x")),
    types.Part(inline_data=types.Blob(data=b"", mime_type="a/b")),
    types.Part(inline_data=types.Blob(data=b"", mime_type="application/octet-stream")),
    types.Part(file_data=types.FileData(file_uri="gs://bucket/x", mime_type="a/b")),
    types.Part(inline_data=types.Blob(data=b"x", mime_type="a/b"), thought_signature=b"\xff"),
]


async def test_versions_and_what_is_known_of_them(artifacts: PersistArtifactService) -> None:
    metadata = {"z": [float("inf"), 2**70], "a": "\x00"}
    assert await artifacts.save_artifact(**FILE, artifact=PARTS[0], custom_metadata=metadata) == 0
    plain = {"inlineData": {"data": "_w==", "mimeType": "a/b"}}
    assert await artifacts.save_artifact(**FILE, artifact=plain) == 1
    first, second = await artifacts.list_artifact_versions(**FILE)
    assert (first.version, first.mime_type, first.custom_metadata) == (0, "text/plain", metadata)
    assert (second.version, second.mime_type, second.custom_metadata) == (1, "a/b", {})
    assert second.canonical_uri == "persist://apps/app/users/maria/sessions/talk/artifacts/f/versions/1"
    assert second.create_time >= first.create_time > 1e9
    assert await artifacts.get_artifact_version(**FILE) == second
    assert await artifacts.get_artifact_version(**FILE, version=0) == first
    assert await artifacts.get_artifact_version(**FILE, version=2) is None
    loaded = await artifacts.load_artifact(**FILE, version=1)
    assert loaded is not None
    assert loaded.inline_data is not None
    assert loaded.inline_data.data == b"\xff"
    assert [await artifacts.load_artifact(**FILE, version=number) for number in (2, -1)] == [None, None]


async def test_references_are_followed_within_their_scope(artifacts: PersistArtifactService) -> None:
    def reference(name: str, version: int = 0, session_id: str | None = ID, user_id: str = "maria") -> types.Part:
        uri = artifact_util.get_artifact_uri("app", user_id, name, version, session_id)
        return types.Part(file_data=types.FileData(file_uri=uri))

    await artifacts.save_artifact(**OF_SESSION, filename="end", artifact=PARTS[2])
    await artifacts.save_artifact(**OF_SESSION, filename="1", artifact=reference("end"))
    await artifacts.save_artifact(**OF_SESSION, filename="2", artifact=reference("1"))
    assert await artifacts.load_artifact(**OF_SESSION, filename="2") == PARTS[2]
    await artifacts.save_artifact(**OF_SESSION, filename="gone", artifact=reference("end", 9))
    assert await artifacts.load_artifact(**OF_SESSION, filename="gone") is None
    await artifacts.save_artifact(**OF_SESSION, filename="loop", artifact=reference("loop"))
    with pytest.raises(InputValidationError):
        await artifacts.load_artifact(**OF_SESSION, filename="loop")
    for foreign in (reference("x", user_id="joe"), reference("x", session_id="other")):
        with pytest.raises(InputValidationError):
            await artifacts.save_artifact(**OF_SESSION, filename="foreign", artifact=foreign)


@pytest.mark.parametrize(
    "wrong",
    [
        {"artifact": types.Part(function_call=types.FunctionCall(name="f"))},
        {"artifact": {"inlineData": 5}},
        {"artifact": "text"},
        {"artifact": types.Part(file_data=types.FileData(file_uri="artifact://nonsense"))},
        {"custom_metadata": {"a": b"bytes"}},
        {"filename": ""},
        {"filename": "user:"},
        {"filename": "a\x00"},
        {"app_name": ""},
        {"user_id": "../x"},
        {"session_id": "a\x00"},
        {"session_id": 5},
    ],
)
def test_what_cannot_be_saved_is_refused(artifacts: PersistArtifactService, do: Do, wrong: dict[str, Any]) -> None:
    with pytest.raises(InputValidationError) as refused:
        do(artifacts.save_artifact(**{**FILE, "artifact": PARTS[0], **wrong}))
    assert isinstance(refused.value, InvalidValue)
    assert do(artifacts.list_artifact_keys(**OF_SESSION)) == []


NAMED = st.tuples(st.sampled_from(["a", "b", "user:a"]), st.sampled_from(["s", "t"]))
OPERATION = st.one_of(
    st.tuples(st.just("save"), NAMED, st.sampled_from(range(len(PARTS)))),
    st.tuples(st.just("delete"), NAMED, st.just(0)),
    st.tuples(st.just("load"), NAMED, st.one_of(st.none(), st.integers(-1, 3))),
)


async def carry_out(service: BaseArtifactService, operation: tuple[str, tuple[str, str], Any]) -> Any:
    kind, (filename, session_id), more = operation
    file: dict[str, Any] = {**NAMES, "filename": filename, "session_id": session_id}
    if kind == "save":
        done: Any = await service.save_artifact(**file, artifact=PARTS[more], custom_metadata={"n": more} if more else None)
    elif kind == "delete":
        done = None
        await service.delete_artifact(**file)
    else:
        version = await service.get_artifact_version(**file, version=more)
        done = (await service.load_artifact(**file, version=more), version and (version.version, version.mime_type))
    known = [(one.version, one.mime_type, one.custom_metadata) for one in await service.list_artifact_versions(**file)]
    keys = [await service.list_artifact_keys(**NAMES, session_id=session_id), await service.list_artifact_keys(**NAMES)]
    return done, known, await service.list_versions(**file), keys


def test_histories_are_those_of_the_in_memory_service(database_url: str, do: Do) -> None:
    with Store.open(database_url) as store:

        @settings(max_examples=15, deadline=None)
        @given(operations=st.lists(OPERATION, max_size=10))
        def compared(operations: list[Any]) -> None:
            store.app_sessions.sessions.erase_user("app", "maria")
            ours, theirs = PersistArtifactService(store), InMemoryArtifactService()
            for operation in operations:
                assert do(carry_out(ours, operation)) == do(carry_out(theirs, operation))

        compared()


def test_large_bytes_are_blobs_that_stay_while_an_artifact_names_them(
    artifacts: PersistArtifactService, store: Any, do: Do, database_url: str
) -> None:
    large = bytes(range(256)) * 300
    part = types.Part(inline_data=types.Blob(data=large, mime_type="image/png", display_name="x"))
    for filename in ("a.png", "user:b.png"):
        assert do(artifacts.save_artifact(**NAMES, session_id=ID, filename=filename, artifact=part)) == 0
    with Store.open(database_url) as look:
        (blob,) = look.blobs.list().items
        assert (blob.size, blob.media_type) == (len(large), "image/png")
        assert prune(look, "blobs", older_than=timedelta(0)).total == 0
        for filename in ("a.png", "user:b.png"):
            assert do(artifacts.load_artifact(**NAMES, session_id=ID, filename=filename)) == part
            do(artifacts.delete_artifact(**NAMES, session_id=ID, filename=filename))
        assert prune(look, "blobs", older_than=timedelta(0)).tables["blobs"] == 1
