"""persist's conformance kit: our services pass it, the framework's but for one check, and each check finds its fault."""

import asyncio
from typing import Any

from google.adk.artifacts.base_artifact_service import ArtifactVersion
from google.adk.artifacts.in_memory_artifact_service import InMemoryArtifactService
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events.event import Event
from google.adk.memory.in_memory_memory_service import InMemoryMemoryService
from google.adk.sessions.base_session_service import BaseSessionService, ListSessionsResponse
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.session import Session
from google.genai import types

from persist.integrations.google_adk import PersistArtifactService, PersistMemoryService, PersistSessionService
from persist.testing.conformance.google_adk import ARTIFACT_CHECKS, CHECKS, MEMORY_CHECKS
from tests.contract.faces import every_way
from tests.integrations.kits import Do, require_all, require_all_but_beyond, require_faults_found


@every_way
def test_our_services_conform(
    sessions: PersistSessionService, artifacts: PersistArtifactService, memories: PersistMemoryService, do: Do
) -> None:
    require_all(do, CHECKS, lambda: sessions)
    require_all(do, ARTIFACT_CHECKS, lambda: artifacts)
    require_all(do, MEMORY_CHECKS, lambda: memories)


def test_the_frameworks_own_services_conform(do: Do) -> None:
    sessions, artifacts, memories = InMemorySessionService(), InMemoryArtifactService(), InMemoryMemoryService()
    require_all_but_beyond(do, CHECKS, lambda: sessions)
    require_all_but_beyond(do, ARTIFACT_CHECKS, lambda: artifacts)
    require_all_but_beyond(do, MEMORY_CHECKS, lambda: memories)


class Stateless(InMemorySessionService):
    async def create_session(self, **given: Any) -> Session:
        return await super().create_session(**{**given, "state": None})


class CreatingTwice(InMemorySessionService):
    async def create_session(self, **given: Any) -> Session:
        try:
            return await super().create_session(**given)
        except AlreadyExistsError:
            return await super().create_session(**{**given, "session_id": None})


class OneScope(InMemorySessionService):
    async def get_session(self, **given: Any) -> Session | None:
        found = await super().get_session(**given)
        if found is not None:
            found.state = {key: value for key, value in found.state.items() if not key.startswith("app:")}
        return found


class LosingState(InMemorySessionService):
    async def append_event(self, session: Session, event: Event) -> Event:
        before = dict(self.user_state.get(session.app_name, {}).get(session.user_id, {}))
        await asyncio.sleep(0)
        self.user_state.setdefault(session.app_name, {})[session.user_id] = before
        return await super().append_event(session, event)


class WithoutBranch(InMemorySessionService):
    async def append_event(self, session: Session, event: Event) -> Event:
        found = await super().append_event(session, event)
        stored = self.sessions[session.app_name][session.user_id][session.id].events
        if stored:
            stored[-1] = stored[-1].model_copy(deep=True, update={"branch": None})
        return found


class Oldest(InMemorySessionService):
    async def get_session(self, **given: Any) -> Session | None:
        config = given.pop("config", None)
        found = await super().get_session(**given)
        if found is not None and config is not None and config.num_recent_events is not None:
            found.events = found.events[: config.num_recent_events]
        return found


class ByTimestamp(InMemorySessionService):
    async def get_session(self, **given: Any) -> Session | None:
        found = await super().get_session(**given)
        if found is not None:
            found.events.sort(key=lambda event: event.timestamp)
        return found


class Partial(InMemorySessionService):
    async def append_event(self, session: Session, event: Event) -> Event:
        whole = event.model_copy(update={"partial": None})
        await super().append_event(session, whole)
        return event


class Repeating(InMemorySessionService):
    async def append_event(self, session: Session, event: Event) -> Event:
        await super().append_event(session, event)
        return await super().append_event(session, event.model_copy(update={"timestamp": event.timestamp + 1}))


class Reviving(InMemorySessionService):
    async def append_event(self, session: Session, event: Event) -> Event:
        self.sessions.setdefault(session.app_name, {}).setdefault(session.user_id, {}).setdefault(session.id, session)
        return await super().append_event(session, event)


class ListingEvents(InMemorySessionService):
    async def list_sessions(self, **given: Any) -> ListSessionsResponse:
        listed = (await super().list_sessions(**given)).sessions
        named: list[Any] = [{"app_name": one.app_name, "user_id": one.user_id, "session_id": one.id} for one in listed]
        return ListSessionsResponse(sessions=[found for one in named if (found := await self.get_session(**one)) is not None])


class Sharing(InMemorySessionService):
    async def get_session(self, *, app_name: str, user_id: str, session_id: str, config: Any = None) -> Session | None:
        return self.sessions.get(app_name, {}).get(user_id, {}).get(session_id)


class InTwoSteps(InMemorySessionService):
    async def append_event(self, session: Session, event: Event) -> Event:
        stored = self.sessions[session.app_name][session.user_id][session.id]
        stored.state.update(event.actions.state_delta)
        await asyncio.sleep(0)
        return await super().append_event(session, event)


def test_each_check_of_sessions_finds_its_fault(do: Do) -> None:
    faults: dict[str, type[BaseSessionService]] = {
        "a_session_comes_back": Stateless,
        "an_id_is_taken_once": CreatingTwice,
        "state_has_three_scopes": OneScope,
        "sessions_keep_each_others_state": LosingState,
        "events_come_back_exactly": WithoutBranch,
        "a_window_gives_the_newest": Oldest,
        "events_keep_the_order_of_appending": ByTimestamp,
        "a_partial_event_is_not_stored": Partial,
        "a_repeated_event_is_stored_once": Repeating,
        "a_session_that_is_gone_takes_no_event": Reviving,
        "sessions_are_listed_without_events": ListingEvents,
        "what_is_returned_is_a_copy": Sharing,
        "a_cancelled_append_is_whole_or_absent": InTwoSteps,
    }
    require_faults_found(do, CHECKS, faults, "an_outdated_writer_is_refused")


class Empty(InMemoryArtifactService):
    async def load_artifact(self, **given: Any) -> types.Part | None:
        return await super().load_artifact(**given) or types.Part(text="")


class FromOne(InMemoryArtifactService):
    async def save_artifact(self, **given: Any) -> int:
        return await super().save_artifact(**given) + 1


class Text(InMemoryArtifactService):
    async def save_artifact(self, **given: Any) -> int:
        part = given["artifact"]
        if part.inline_data is not None:
            given["artifact"] = types.Part(text=part.inline_data.data.decode(errors="replace"))
        return await super().save_artifact(**given)


class Undescribed(InMemoryArtifactService):
    async def save_artifact(self, **given: Any) -> int:
        return await super().save_artifact(**{**given, "custom_metadata": None})


class OfAnyUser(InMemoryArtifactService):
    def _artifact_path(self, app_name: str, user_id: str, filename: str, session_id: str | None) -> str:
        return super()._artifact_path(app_name, "anybody", filename, session_id)


class Unsorted(InMemoryArtifactService):
    async def list_artifact_keys(self, **given: Any) -> list[str]:
        return (await super().list_artifact_keys(**given))[::-1]


class DeletingTheLatest(InMemoryArtifactService):
    async def delete_artifact(self, **given: Any) -> None:
        versions = self.artifacts.get(self._artifact_path(**{"session_id": None, **given}), [])
        del versions[-1:]


class TakingAll(InMemoryArtifactService):
    async def save_artifact(self, **given: Any) -> int:
        if given["artifact"].function_call is not None:
            given["artifact"] = types.Part(text="")
        return await super().save_artifact(**given)


class SameNumber(InMemoryArtifactService):
    async def save_artifact(self, **given: Any) -> int:
        number = len(await self.list_versions(**{name: given[name] for name in given if name != "artifact"}))
        await asyncio.sleep(0)
        await super().save_artifact(**given)
        return number


class Announcing(InMemoryArtifactService):
    async def save_artifact(self, **given: Any) -> int:
        path = self._artifact_path(given["app_name"], given["user_id"], given["filename"], given["session_id"])
        number = await super().save_artifact(**given)
        entry = self.artifacts[path].pop()
        whole = entry.data
        entry.data, entry.artifact_version = types.Part(), ArtifactVersion(version=number, canonical_uri="x")
        self.artifacts[path].append(entry)
        await asyncio.sleep(0)
        entry.data = whole
        return number


def test_each_check_of_artifacts_finds_its_fault(do: Do) -> None:
    faults: dict[str, type[InMemoryArtifactService]] = {
        "an_unknown_artifact_is_nothing": Empty,
        "versions_count_from_zero": FromOne,
        "parts_come_back_exactly": Text,
        "versions_have_a_type_and_metadata": Undescribed,
        "artifacts_belong_to_a_session_or_a_user": OfAnyUser,
        "names_are_listed": Unsorted,
        "a_deleted_artifact_is_gone": DeletingTheLatest,
        "what_holds_nothing_is_refused": TakingAll,
        "versions_that_are_saved_at_once_differ": SameNumber,
        "a_cancelled_save_is_whole_or_absent": Announcing,
    }
    require_faults_found(do, ARTIFACT_CHECKS, faults)


class Searching(InMemoryMemoryService):
    """Finds what a function of the query finds."""

    def asked(self, query: str) -> str:
        return query

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> Any:
        return await super().search_memory(app_name=app_name, user_id=user_id, query=self.asked(query))


class Always(Searching):
    def asked(self, query: str) -> str:
        return query or "word"


class InCapitals(InMemoryMemoryService):
    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> Any:
        found = await super().search_memory(app_name=app_name, user_id=user_id, query=query)
        found.memories = [one for one in found.memories if any(word in str(one.content) for word in query.split())]
        return found


class Anonymous(InMemoryMemoryService):
    async def search_memory(self, **asked: Any) -> Any:
        found = await super().search_memory(**asked)
        for one in found.memories:
            one.author = None
        return found


class OfAnybody(InMemoryMemoryService):
    async def add_session_to_memory(self, session: Session) -> None:
        await super().add_session_to_memory(session.model_copy(update={"user_id": "anybody"}))

    async def search_memory(self, **asked: Any) -> Any:
        return await super().search_memory(**{**asked, "user_id": "anybody"})


class Adding(InMemoryMemoryService):
    async def add_session_to_memory(self, session: Session) -> None:
        await self.add_events_to_memory(
            app_name=session.app_name, user_id=session.user_id, events=session.events, session_id=session.id
        )


class LastFirst(InMemoryMemoryService):
    async def search_memory(self, **asked: Any) -> Any:
        found = await super().search_memory(**asked)
        found.memories.reverse()
        return found


class Strict(InMemoryMemoryService):
    async def add_session_to_memory(self, session: Session) -> None:
        if any(event.content is None for event in session.events):
            raise ValueError("an event without content")
        await super().add_session_to_memory(session)


class LastAdded(InMemoryMemoryService):
    async def add_session_to_memory(self, session: Session) -> None:
        before = dict(self._session_events.get((session.app_name, session.user_id), {}))
        await asyncio.sleep(0)
        self._session_events[session.app_name, session.user_id] = before
        await super().add_session_to_memory(session)


def test_each_check_of_memories_finds_its_fault(do: Do) -> None:
    faults: dict[str, type[InMemoryMemoryService]] = {
        "nothing_is_remembered_at_first": Always,
        "a_memory_is_found_by_a_word": InCapitals,
        "a_memory_comes_back_whole": Anonymous,
        "users_have_memories_of_their_own": OfAnybody,
        "a_session_that_is_added_again_is_replaced": Adding,
        "what_has_the_most_words_comes_first": LastFirst,
        "what_has_no_text_is_no_memory": Strict,
        "sessions_that_are_added_at_once_are_kept": LastAdded,
    }
    require_faults_found(do, MEMORY_CHECKS, faults)
