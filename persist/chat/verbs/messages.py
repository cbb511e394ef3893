"""`tx.chat.messages`: verbs of messages. Their rules are in the modules beside this one."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

from persist.blobs.content import checked_digest
from persist.blobs.schemas import Blob
from persist.chat.posted.messages import check_messages
from persist.chat.posted.plan import Trigger
from persist.chat.schemas import ChatMessage, Files, Role, SummaryAs, SyncedMessages, UIMessage
from persist.chat.storage import transcript
from persist.chat.storage.append_once import append
from persist.chat.storage.files import blob_of_session
from persist.chat.storage.message_insert import Posting, check_parts, post
from persist.chat.storage.usage import add_step, check_step, step_counts
from persist.chat.verbs import approvals, compaction, deleting, queueing, repair, replaying, syncing
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.values.arguments import check_choice, check_list
from persist.db.values.clock import as_utc, to_ms
from persist.db.values.json import Json, plain_object
from persist.errors import InvalidValue
from persist.usage.writing import window_of

List = list


class ChatMessages(Repository[F]):
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
        created_at: datetime | None = None,
    ) -> ChatMessage:
        """Append a complete message to the session. A user message's `metadata.model` becomes the session's model.

        If a message of equal content has the `id`, that one is returned and nothing changes. `created_at` is for imports: an
        instant of the past, by which messages are ordered. Raises NotFound without the session, Conflict if the id is taken.
        """
        work = self._work
        speaker = check_choice("role", role, Role)
        session_id = work.label("session_id", session_id)
        posting = Posting(session_id, speaker, check_parts(work, session_id, parts), plain_object(metadata, "metadata"))
        if id is None and created_at is None:
            return post(work, posting, id=None)
        then = None if created_at is None else to_ms(as_utc("created_at", created_at))
        if then is not None and then > work.now():
            raise InvalidValue("created_at", "it lies in the future.")
        return append(work, posting, id=None if id is None else work.label("id", id), created_at=then)

    @writes
    def sync(
        self,
        session_id: str,
        ui_messages: Sequence[Json],
        *,
        trigger: Literal["submit-message", "regenerate-message"] | None = None,
        message_id: str | None = None,
        client_tools: Iterable[str] | None = None,
    ) -> SyncedMessages:
        """Take in the messages that a browser posts, as `messages`, `trigger` and `messageId` of useChat; what that changed.

        New questions are appended, an edited one replaces its content, answers taken back are hidden, approvals and results of
        `client_tools` are stored; None allows every unfinished call that waits for nobody. Everything else stays as it is
        stored. Raises NotFound without the session, InvalidValue for what a browser may not change, Conflict for a hidden
        message, a message of another session, and a change while a turn runs. The same list again changes nothing more.
        """
        work = self._work
        return syncing.sync(
            work,
            work.label("session_id", session_id),
            check_messages(ui_messages),
            trigger=None if trigger is None else check_choice("trigger", trigger, Trigger),
            message_id=None if message_id is None else work.label("message_id", message_id),
            client_tools=None if client_tools is None else _names("client_tools", client_tools),
        )

    @reads
    def list(
        self,
        session_id: str,
        *,
        include_hidden: bool = False,
        limit: int | None = None,
        before: str | None = None,
        files: Literal["data", "reference"] = "data",
    ) -> List[UIMessage]:
        """Messages, oldest first, without queued ones. Raises NotFound without the session.

        `limit`: only the newest N. `before`: only messages before that message id. Hidden ones only with `include_hidden`.
        `files="reference"`: a large file's URL is `persist-blob:<sha256>`, and its bytes are not read.
        """
        work = self._work
        return transcript.read_messages(
            work,
            work.label("session_id", session_id),
            include_hidden=include_hidden,
            limit=limit,
            before=None if before is None else work.label("before", before),
            files=check_choice("files", files, Files),
        )

    @reads
    def list_json(
        self,
        session_id: str,
        *,
        include_hidden: bool = False,
        limit: int | None = None,
        before: str | None = None,
        files: Literal["data", "reference"] = "data",
    ) -> bytes:
        """The messages of `list` as one JSON array in UTF-8, joined from the stored text without parsing it."""
        work = self._work
        return transcript.read_json(
            work,
            work.label("session_id", session_id),
            include_hidden=include_hidden,
            limit=limit,
            before=None if before is None else work.label("before", before),
            files=check_choice("files", files, Files),
        )

    @reads
    def list_rows(
        self, session_id: str, *, include_hidden: bool = False, limit: int | None = None, before: str | None = None
    ) -> List[ChatMessage]:
        """The messages of `list` without their parts, with the instants at which they were created and last changed."""
        work = self._work
        return transcript.read_rows(
            work,
            work.label("session_id", session_id),
            include_hidden=include_hidden,
            limit=limit,
            before=None if before is None else work.label("before", before),
        )

    @reads
    def get(self, id: str, *, files: Literal["data", "reference"] = "data") -> UIMessage:
        """One message with its parts, even if hidden or queued. Raises NotFound."""
        return transcript.read_message(self._work, self._work.label("id", id), check_choice("files", files, Files))

    @writes
    def delete(self, id: str) -> None:
        """Delete a message, with its parts and its usage; the session's counters are those of the messages that are left.

        The tail of a compaction that begins with it begins with the next message. Forks keep their copies. Raises NotFound, and
        Conflict for the message that a turn is writing.
        """
        deleting.delete_message(self._work, self._work.label("id", id))

    @reads
    def file(self, session_id: str, sha256: str) -> Blob:
        """The blob of a file in the session's messages. Raises NotFound for any other: so a host serves what a URL names."""
        return blob_of_session(self._work, self._work.label("session_id", session_id), checked_digest("sha256", sha256))

    @reads
    def replay(
        self, id: str, *, ai_sdk: Literal[6, 7] | None = None, files: Literal["data", "reference"] = "data"
    ) -> List[dict[str, Json]]:
        """The chunks of a UI message stream that rebuild one assistant message, under the same id.

        They have no end while the message's turn runs. Raises NotFound, and InvalidValue for a message that is not the
        assistant's. `ai_sdk`: the major that reads the chunks; None takes the value from Settings.
        """
        return replaying.replay(self._work, self._work.label("id", id), ai_sdk, check_choice("files", files, Files))

    @reads
    def cursor(self, session_id: str, message_id: str) -> str:
        """The place after all that an assistant message holds now, for a client that has it already.

        `follow(session_id, cursor)` then yields what comes, also if the answer has ended by then. The message may be the running
        turn's, with no part yet. Raises NotFound if the message is no assistant's of this session, or is hidden.
        """
        work = self._work
        return replaying.cursor(work, work.label("session_id", session_id), work.label("message_id", message_id))

    @writes
    def update_metadata(self, id: str, patch: Mapping[str, Json]) -> ChatMessage:
        """Merge a patch (RFC 7396) into the metadata: objects merge, null removes.

        Raises InvalidValue for keys of queue and rewind.
        """
        return queueing.patch_metadata(self._work, self._work.label("id", id), self._work.json_object("patch", patch))

    @reads
    def model_view(
        self,
        session_id: str,
        *,
        summary_as: Literal["text", "data"] = "text",
        files: Literal["data", "reference"] = "data",
    ) -> List[UIMessage]:
        """The messages to send to the model: after a compaction the summary, the kept tail, and everything since.

        The summary is a user message with a text part, which converters to model messages pass on and providers accept first.
        With `summary_as="data"` it is the stored message; converting its `data-compaction` part is then up to the caller.
        """
        work, session_id = self._work, self._work.label("session_id", session_id)
        how = check_choice("files", files, Files)
        return compaction.model_view(work, session_id, check_choice("summary_as", summary_as, SummaryAs), how)

    @writes
    def compact(
        self, session_id: str, *, summary: str, tail_start_id: str | None, auto: bool, summary_tokens: int
    ) -> ChatMessage:
        """Append a compaction: a message with one part, the summary and the id where the kept tail starts. No message is hidden.

        Raises NotFound without the session, or if it shows no message `tail_start_id`.
        """
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
        """Append a user message that waits for the turn's end. `id` or `metadata.trigger.delivery_id` makes this idempotent."""
        work = self._work
        session_id = work.label("session_id", session_id)
        given = work.json_object("metadata", metadata)
        posting = Posting(session_id, Role.USER, check_parts(work, session_id, parts), given)
        return queueing.enqueue(work, posting, id=None if id is None else work.label("id", id))

    @reads
    def queued(self, session_id: str) -> List[ChatMessage]:
        """The waiting messages, first in, first out."""
        return queueing.queued(self._work, self._work.label("session_id", session_id))

    @writes
    def claim_queued(self, session_id: str, *, human_input_tools: Iterable[str] = ()) -> ChatMessage | None:
        """Take the oldest waiting message out of the queue into the transcript; of concurrent callers exactly one gets it.

        A message is returned again if the process that took it died before it recorded the answer's first chunk.
        None if none waits, while the session's turn runs or is in error, while an approval is open, or while a call of one of
        `human_input_tools` waits.
        """
        work = self._work
        tools = _names("human_input_tools", human_input_tools)
        return queueing.claim(work, work.label("session_id", session_id), tools)

    @writes
    def cancel_queued(self, id: str) -> bool:
        """Cancel a waiting message. False if it was claimed or canceled before, or does not exist."""
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
        """Add a step's usage, as the SDK reports it, to the message and session. Recording a step again changes nothing.

        Counts are tokens, `cost_usd` US dollars. Raises NotFound without the message.
        """
        counts = step_counts(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            reasoning_tokens=reasoning_tokens,
            cache_read_tokens=cache_read_tokens,
            cache_write_tokens=cache_write_tokens,
            cost_usd=cost_usd,
        )
        work = self._work
        id, window = work.label("message_id", message_id), window_of(work.runtime.settings)
        add_step(work, id, check_step(step), counts, work.now(), window)

    @writes
    def answer_approval(self, session_id: str, approval_id: str, *, approved: bool, reason: str | None = None) -> bool:
        """Answer a visible open approval; False if no such approval is open. Call it before the turn is resumed."""
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
        """After a restart: turn tool parts that a dead turn left unfinished into errors; the number of parts changed.

        Sessions with a live turn are skipped, and so are open approvals and calls of `human_input_tools`. Without `session_id`
        all sessions are repaired, but only messages not updated for `idle`.
        """
        work = self._work
        if session_id is not None:
            work.label("session_id", session_id)
        return repair.repair(work, session_id, idle=idle, human_input_tools=_names("human_input_tools", human_input_tools))


def _names(path: str, tools: Iterable[str]) -> frozenset[str]:
    names = check_list(path, tools)
    if not all(isinstance(name, str) for name in names):
        raise InvalidValue(path, "expected a list of tool names.")
    return frozenset(names)
