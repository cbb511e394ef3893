"""PersistArtifactService: Google ADK's artifact service over a Store or an AsyncStore."""

from typing import Any

from google.adk.artifacts import artifact_util
from google.adk.artifacts.base_artifact_service import ArtifactVersion, BaseArtifactService, ensure_part
from google.genai import types
from pydantic import ValidationError

from persist.db.values.arguments import check_kind
from persist.errors import StoreCorrupt
from persist.framework_state.app_sessions import schemas as stored
from persist.framework_state.app_sessions.artifacts import AppArtifacts
from persist.framework_state.app_sessions.schemas import ArtifactKey
from persist.integrations.google_adk import encoding
from persist.integrations.store_bridge import StoreBridge, kind_of
from persist.store.async_store import AsyncStore
from persist.store.store import Store

_USER = "user:"
_MOST_REFERENCES = 5
"""How many references to other artifacts one load follows, as in the framework's services."""
_REMOVED = types.Part(inline_data=types.Blob(mime_type="application/octet-stream", data=b""))
"""What the framework saves as a version when it rewinds a session to before an artifact was there."""


class PersistArtifactService(BaseArtifactService):
    """Keeps artifacts in a store: `Runner(..., artifact_service=PersistArtifactService(store))`.

    An artifact belongs to its session, or to the user if its name begins with `user:` or no session is named. Every call is
    one transaction; versions that are saved at the same time get different numbers. The bytes of a part are stored as bytes.
    """

    def __init__(self, store: Store | AsyncStore) -> None:
        with encoding.InvalidArgument.raised():
            self._bridge = StoreBridge(store)

    async def save_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        artifact: types.Part | dict[str, Any],
        session_id: str | None = None,
        custom_metadata: dict[str, Any] | None = None,
    ) -> int:
        """Save a version and return its number: 0, 1, 2 and so on. A part with `file_data` is kept as the reference it is."""
        with encoding.InvalidArgument.raised():
            key = _key(app_name, user_id, filename, session_id)
            part = _part(artifact)
            mime_type = _mime_type(part, key)
            metadata = encoding.value_text("custom_metadata", encoding.mapping("custom_metadata", custom_metadata))
            data = None if part.inline_data is None else part.inline_data.data
            if part.inline_data is not None:
                part = part.model_copy(update={"inline_data": part.inline_data.model_copy(update={"data": None})})
            text = encoding.model_text("artifact", part)
            return await self._bridge.call_async(
                lambda work: AppArtifacts(work).save(key, text, data=data, mime_type=mime_type, metadata=metadata), writes=True
            )

    async def load_artifact(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None, version: int | None = None
    ) -> types.Part | None:
        """A version of an artifact, the latest without a number; None if there is none. References to artifacts are followed."""
        with encoding.InvalidArgument.raised():
            key = _key(app_name, user_id, filename, session_id)
            return await self._bridge.call_async(lambda work: _load(AppArtifacts(work), key, version), writes=False)

    async def list_artifact_keys(self, *, app_name: str, user_id: str, session_id: str | None = None) -> list[str]:
        """The names of a session's artifacts and of the user's, sorted; those of the user begin with `user:`."""
        with encoding.InvalidArgument.raised():
            _check_names(app_name, user_id, session_id)
            found = await self._bridge.call_async(
                lambda work: AppArtifacts(work).names(app_name, user_id, session_id), writes=False
            )
        return sorted(key.filename if key.session_id is not None else _USER + key.filename for key in found)

    async def delete_artifact(self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None) -> None:
        """Delete an artifact with all its versions, if there is one."""
        with encoding.InvalidArgument.raised():
            key = _key(app_name, user_id, filename, session_id)
            await self._bridge.call_async(lambda work: AppArtifacts(work).delete(key), writes=True)

    async def list_versions(self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None) -> list[int]:
        """The numbers of an artifact's versions."""
        found = await self.list_artifact_versions(app_name=app_name, user_id=user_id, filename=filename, session_id=session_id)
        return [one.version for one in found]

    async def list_artifact_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[ArtifactVersion]:
        """What is known of an artifact's versions, besides their contents."""
        with encoding.InvalidArgument.raised():
            key = _key(app_name, user_id, filename, session_id)
            found = await self._bridge.call_async(lambda work: AppArtifacts(work).versions(key), writes=False)
        return [_version(key, one) for one in found]

    async def get_artifact_version(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None, version: int | None = None
    ) -> ArtifactVersion | None:
        """What is known of one version, the latest without a number; None if there is none."""
        if version is not None and type(version) is not int:
            raise encoding.InvalidArgument("version", f"expected a whole number, got {type(version).__name__}.")
        found = await self.list_artifact_versions(app_name=app_name, user_id=user_id, filename=filename, session_id=session_id)
        named = found[-1:] if version is None else [one for one in found if one.version == version]
        return named[0] if named else None


def _check_names(app_name: str, user_id: str, session_id: str | None) -> None:
    """Raises the framework's error for names that cannot be part of an artifact's address."""
    given = {"app_name": app_name, "user_id": user_id, **({} if session_id is None else {"session_id": session_id})}
    for name, value in given.items():
        if not isinstance(value, str):
            raise encoding.InvalidArgument(name, f"expected text, got {type(value).__name__}.")
        try:
            artifact_util.validate_path_segment(value, name)
        except ValueError as error:
            raise encoding.InvalidArgument(name, str(error)) from error


def _key(app_name: str, user_id: str, filename: str, session_id: str | None) -> ArtifactKey:
    of_user = str(filename).startswith(_USER)
    _check_names(app_name, user_id, None if of_user else session_id)
    if of_user:
        return ArtifactKey(app_name, user_id, None, filename.removeprefix(_USER))
    return ArtifactKey(app_name, user_id, session_id, filename)


def _part(artifact: types.Part | dict[str, Any]) -> types.Part:
    try:
        part = ensure_part(artifact)
    except ValidationError as error:
        found = f"it is no part: {kind_of(error)}."
    else:
        if isinstance(part, types.Part):
            return part
        found = f"expected a part, got {type(part).__name__}."
    raise encoding.InvalidArgument("artifact", found)


def _mime_type(part: types.Part, key: ArtifactKey) -> str | None:
    """The type of a part that can be an artifact. Raises InvalidArgument for any other."""
    if part.inline_data is not None:
        return check_kind("artifact.inline_data", part.inline_data, types.Blob).mime_type
    if part.text is not None:
        return "text/plain"
    if part.file_data is None:
        raise encoding.InvalidArgument("artifact", "Not supported artifact type: it has neither inline_data, text nor file_data.")
    if not artifact_util.is_artifact_ref(part):
        return part.file_data.mime_type
    _referred(part, key)
    return None


def _referred(part: types.Part, key: ArtifactKey) -> tuple[ArtifactKey, int]:
    """The artifact and version to which a part refers. Raises InvalidArgument for those of another user or session."""
    uri = part.file_data.file_uri if part.file_data is not None else None
    parsed = artifact_util.parse_artifact_uri(uri or "")
    if parsed is None:
        raise encoding.InvalidArgument("artifact", "Invalid artifact reference URI.")
    if (parsed.app_name, parsed.user_id) != (key.app_name, key.user_id):
        raise encoding.InvalidArgument("artifact", "Artifact references must stay within the same app and user scope.")
    if parsed.session_id not in (None, key.session_id):
        raise encoding.InvalidArgument("artifact", "Session-scoped artifact references must stay within the same session scope.")
    return _key(parsed.app_name, parsed.user_id, parsed.filename, parsed.session_id), parsed.version


def _load(artifacts: AppArtifacts, key: ArtifactKey, version: int | None) -> types.Part | None:
    for _ in range(_MOST_REFERENCES + 1):
        if isinstance(version, int) and version < 0:
            return None
        found = artifacts.load(key, version)
        if found is None:
            return None
        part = encoding.model_of(types.Part, found.part, f"artifact {key.filename}")
        if part.inline_data is not None:
            part.inline_data.data = found.data
        if not artifact_util.is_artifact_ref(part):
            return None if part in (types.Part(), _REMOVED) else part
        key, version = _referred(part, key)
    raise encoding.InvalidArgument("artifact", "Exceeded maximum recursion depth resolving artifact references.")


def _version(key: ArtifactKey, found: stored.ArtifactVersion) -> ArtifactVersion:
    of_session = "" if key.session_id is None else f"/sessions/{key.session_id}"
    name = key.filename if key.session_id is not None else _USER + key.filename
    owner = f"persist://apps/{key.app_name}/users/{key.user_id}{of_session}"
    what = f"artifact {name}"
    metadata = encoding.stored_value(what, found.metadata)
    if not isinstance(metadata, dict):
        raise StoreCorrupt(what, f"the metadata of version {found.version} are no object.")
    return ArtifactVersion(
        version=found.version,
        canonical_uri=f"{owner}/artifacts/{name}/versions/{found.version}",
        custom_metadata=metadata,
        create_time=found.created_at.timestamp(),
        mime_type=found.mime_type,
    )
