"""Chat messages: the verbs. What each rule says is in the module named like it."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Literal

from persist.chat import approvals, compaction, queueing, repair, transcript
from persist.chat.posting import Posting, check_parts, post
from persist.chat.schemas import ChatMessage, Role, SummaryAs, UIMessage
from persist.chat.usage import add_step, check_step, step_counts
from persist.db.checks import check_items, check_word
from persist.db.json import Json
from persist.db.repository import Repository, reads, writes
from persist.errors import InvalidValue

List = list


class ChatMessages(Repository):
    """`tx.chat.messages`."""

    @writes
    def append(
        self,
        session_id: str,
        *,
        role: Literal["user", "assistant", "system"],
        parts: Sequence[Json],
        metadata: Json = None,
        id: str | None = None,
    ) -> ChatMessage:
        """A complete message at the end of the session. A user message's `metadata.model` becomes the session's model.

        NotFound without the session; Conflict if the id is taken.
        """
        work = self._work
        speaker = check_word("role", role, Role)
        given = Posting(
            work.label("session_id", session_id), speaker, check_parts(work, parts), work.json_object("metadata", metadata)
        )
        return post(work, given, id=None if id is None else work.label("id", id))

    @reads
    def list(
        self, session_id: str, *, include_hidden: bool = False, limit: int | None = None, before: str | None = None
    ) -> List[UIMessage]:
        """Oldest first, never queued ones; `limit` is the newest N, `before` a message id. NotFound without the session."""
        work = self._work
        return transcript.read_messages(
            work,
            work.label("session_id", session_id),
            include_hidden=include_hidden,
            limit=limit,
            before=None if before is None else work.label("before", before),
        )

    @reads
    def list_json(self, session_id: str, *, include_hidden: bool = False) -> bytes:
        """The same as one JSON array in UTF-8, spliced from what is stored without parsing it."""
        return transcript.read_json(self._work, self._work.label("session_id", session_id), include_hidden=include_hidden)

    @reads
    def get(self, id: str) -> UIMessage:
        """One message with its parts, hidden or queued as it may be; NotFound."""
        return transcript.read_message(self._work, self._work.label("id", id))

    @writes
    def update_metadata(self, id: str, patch: Mapping[str, Json]) -> ChatMessage:
        """Merge a patch (RFC 7396): objects merge, null removes."""
        return queueing.patch_metadata(self._work, self._work.label("id", id), self._work.json_object("patch", patch))

    @reads
    def model_view(self, session_id: str, *, summary_as: Literal["text", "data"] = "text") -> List[UIMessage]:
        """What the model should see: after a compaction the summary, the kept tail, and everything since.

        The summary is a user message with a text part, which converters to model messages pass on and providers take as the
        first one; `summary_as="data"` gives the stored message, whose `data-compaction` part is the caller's to convert.
        """
        work = self._work
        return compaction.model_view(work, work.label("session_id", session_id), check_word("summary_as", summary_as, SummaryAs))

    @writes
    def compact(
        self, session_id: str, *, summary: str, tail_start_id: str | None, auto: bool, summary_tokens: int
    ) -> ChatMessage:
        """Append a compaction: a message whose one part holds the summary and where the kept tail starts. Hides nothing."""
        return compaction.compact(
            self._work,
            self._work.label("session_id", session_id),
            summary=summary,
            tail_start_id=tail_start_id,
            auto=auto,
            summary_tokens=summary_tokens,
        )

    @writes
    def enqueue(self, session_id: str, *, parts: Sequence[Json], metadata: Json = None, id: str | None = None) -> ChatMessage:
        """A user message that waits behind the running turn. The id, or `metadata.trigger.delivery_id`, makes it idempotent."""
        work = self._work
        given = Posting(
            work.label("session_id", session_id), Role.USER, check_parts(work, parts), work.json_object("metadata", metadata)
        )
        return queueing.enqueue(work, given, id=None if id is None else work.label("id", id))

    @reads
    def queued(self, session_id: str) -> List[ChatMessage]:
        """Waiting messages, first in first out."""
        return queueing.queued(self._work, self._work.label("session_id", session_id))

    @writes
    def claim_queued(self, session_id: str, *, human_input_tools: Iterable[str] = ()) -> ChatMessage | None:
        """Fire the oldest waiting message, exactly once however many try.

        None while the session runs or is in error, while an approval is open, or while a tool of `human_input_tools` waits.
        """
        return queueing.claim(self._work, self._work.label("session_id", session_id), _names(human_input_tools))

    @writes
    def cancel_queued(self, id: str) -> bool:
        """Withdraw a waiting message; False when it fired, was canceled, or never existed."""
        return queueing.cancel(self._work, self._work.label("id", id))

    @writes
    def record_step_usage(
        self,
        message_id: str,
        step: int,
        *,
        input_tokens: int,
        output_tokens: int,
        reasoning_tokens: int = 0,
        cache_read_tokens: int = 0,
        cache_write_tokens: int = 0,
        cost_usd: float = 0.0,
    ) -> None:
        """Add a step's usage, as the SDK reports it, to the message and the session; the same step again changes nothing."""
        counts = step_counts(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            reasoning_tokens=reasoning_tokens,
            cache_read_tokens=cache_read_tokens,
            cache_write_tokens=cache_write_tokens,
            cost_usd=cost_usd,
        )
        add_step(self._work, self._work.label("message_id", message_id), check_step(step), counts, self._work.now())

    @writes
    def answer_approval(self, session_id: str, approval_id: str, *, approved: bool, reason: str | None = None) -> bool:
        """Answer a visible open approval; False when no such approval is open. Store it before the turn is resumed."""
        work = self._work
        session_id, approval_id = work.label("session_id", session_id), work.label("approval_id", approval_id)
        return approvals.answer(work, session_id, approval_id, approved=approved, reason=reason)

    @writes
    def repair_interrupted(
        self,
        session_id: str | None = None,
        *,
        idle: timedelta = timedelta(minutes=5),
        human_input_tools: Iterable[str] = (),
    ) -> int:
        """After a restart: tool parts that a dead turn left unfinished become errors; the number of parts.

        Sessions whose turn is alive are skipped, as are approvals and tools that wait for a human. Without a session, only
        messages untouched for `idle`.
        """
        work = self._work
        if session_id is not None:
            work.label("session_id", session_id)
        if not isinstance(idle, timedelta):
            raise InvalidValue("idle", "expected a timedelta.")
        return repair.repair(work, session_id, idle=idle, human_input_tools=_names(human_input_tools))


def _names(tools: Iterable[str]) -> frozenset[str]:
    names = check_items("human_input_tools", tools)
    if not all(isinstance(name, str) for name in names):
        raise InvalidValue("human_input_tools", "expected a list of tool names.")
    return frozenset(names)
