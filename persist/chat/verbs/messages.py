"""`tx.chat.messages`: verbs of messages."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import Text, cast, delete, select

from persist.blobs.content import checked_digest
from persist.blobs.schemas import Blob
from persist.chat.following.follower import encode_cursor
from persist.chat.following.rendering import SentChunks, missing_chunks, snapshot_turn
from persist.chat.models import IS_COMPACTION, IS_UNFINISHED, VISIBLE, messages, parts, sessions, turns
from persist.chat.posted.messages import check_messages
from persist.chat.posted.plan import Trigger
from persist.chat.reducer.parts import approval_id as approval_of
from persist.chat.reducer.parts import is_part, with_approval_response
from persist.chat.reducer.replaying import chunks_of
from persist.chat.schemas import ChatMessage, Files, Role, SummaryAs, SyncedMessages, ToolState, UIMessage
from persist.chat.storage import transcript, usage
from persist.chat.storage.files import blob_of_session
from persist.chat.storage.folding import stored_object
from persist.chat.storage.message_insert import Posting, append, check_parts, post
from persist.chat.storage.statements import LOCK_SESSION, REWRITE_PART
from persist.chat.storage.turns import TURN, stop_turn, turn_of
from persist.chat.verbs import branching, queueing, repair, syncing
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.db.values.arguments import Amount, check_choice, check_list
from persist.db.values.clock import as_utc, to_ms
from persist.db.values.json import Json, plain_object
from persist.errors import Conflict, InvalidValue, NotFound
from persist.settings import AiSdk
from persist.usage.writing import window_of

_M = messages.c
_P = parts.c
_REQUESTED = Statement(
    select(_P.id, _P.type, _P.data_json)
    .join(messages, _M.id == _P.message_id)
    .where(_P.session_id == param("session_id"), IS_UNFINISHED, _P.tool_state == ToolState.APPROVAL_REQUESTED, VISIBLE)
    .order_by(_M.created_at.desc(), _M.id.desc(), _P.index.desc()),
    unreadable=OnUnreadable.LEAVE_OUT,
)


# Deleting one message: its parts, deltas and step usage go with it, by their foreign keys.

_id = param("row_id")
_session = select(_M.session_id).where(_M.id == _id).scalar_subquery()
_LOCK_TURN = Statement(select(*TURN).where(turns.c.session_id == _session).with_for_update())
_LOCK_SESSION = Statement(select(sessions.c.id).where(sessions.c.id == _session).with_for_update())
_ROWS = Statement(
    select(_M.id, _M.role, cast(_M.metadata_json, Text)).where(_M.session_id == _session).order_by(_M.created_at, _M.id)
)
_MARKERS = Statement(
    select(_P.message_id, _P.data_json, _P.id, _P.type)
    .where(_P.session_id == _session, IS_COMPACTION)
    .order_by(_P.message_id, _P.index)
)
_DELETE = Statement(delete(messages).where(_M.id == _id))


def _is_visible(message: UIMessage) -> bool:
    return message["metadata"].get("queued_at") is None and message["metadata"].get("hidden_at") is None


def _without_tail(marker: Row, id: str, everything: Sequence[UIMessage]) -> dict[str, Any]:
    """The data of a compaction whose tail begins after that message."""
    ids = [message["id"] for message in everything]
    following = everything[ids.index(id) + 1 : ids.index(marker[0]) if marker[0] in ids else 0]
    start = next((message["id"] for message in following if _is_visible(message)), None)
    return {**marker[1], "data": {**marker[1]["data"], "tail_start_id": start}}


_T = turns.c
_replayed_session = select(messages.c.session_id).where(messages.c.id == param("row_id")).scalar_subquery()
_TURN = Statement(select(*TURN).where(_T.session_id == _replayed_session))

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
        posting = Posting(session_id, speaker, check_parts(work, session_id, parts), _metadata(speaker, metadata))
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
        shown = _shown(work, session_id, include_hidden, limit, before)
        return transcript.read_messages(work, **shown, files=check_choice("files", files, Files))

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
        shown = _shown(work, session_id, include_hidden, limit, before)
        return transcript.read_json(work, **shown, files=check_choice("files", files, Files))

    @reads
    def list_rows(
        self, session_id: str, *, include_hidden: bool = False, limit: int | None = None, before: str | None = None
    ) -> List[ChatMessage]:
        """The messages of `list` without their parts, with the instants at which they were created and last changed."""
        work = self._work
        return transcript.read_rows(work, **_shown(work, session_id, include_hidden, limit, before))

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
        work, now, id = self._work, self._work.now(), self._work.label("id", id)
        with work.batch() as batch:
            turn_row = batch.row(_LOCK_TURN, row_id=id)  # locked before the session, in the order that recorders use
            session = batch.row(_LOCK_SESSION, row_id=id)
            rows = batch.rows(_ROWS, row_id=id)
            marker_rows = batch.rows(_MARKERS, row_id=id)
        session_id, turn = session.must_exist("message", id)[0], turn_of(turn_row.result)
        if turn is not None and turn.message_id == id and turn.running(now):
            raise Conflict(f"Message {id} is being written by a turn that runs; request_stop ends it.", constraint="chat_turns")
        everything = [
            {"id": row_id, "role": str(role), "metadata": stored_object(work, stored, f"the metadata of message {row_id}")}
            for row_id, role, stored in rows.result
        ]
        visible = [message for message in everything if message["id"] != id and _is_visible(message)]
        markers = [row for row in marker_rows.result if row[0] != id]
        moved = [(row, _without_tail(row, id, everything)) for row in markers if (usage.marker_value(row) or ("", None))[1] == id]
        latest = {row[2]: data for row, data in moved}
        counted = [(row[0], latest.get(row[2], row[1])) for row in markers]
        with work.batch(last=True) as batch:
            for row, data in moved:
                text = work.json("part", data)
                batch.run(REWRITE_PART, row_id=row[2], new_type=row[3], new_tool_state=None, data=text, at=now)
            batch.run(_DELETE, row_id=id)
            batch.run(usage.SET_COUNTERS, row_id=session_id, **usage.totals_of(visible, usage.newest_of(counted, visible)))
            if turn is not None and turn.message_id == id:
                stop_turn(batch, session_id, turn)

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
        work, row_id, how = self._work, self._work.label("id", id), check_choice("files", files, Files)
        major = work.runtime.settings.ai_sdk if ai_sdk is None else AiSdk.of(ai_sdk)
        with work.batch() as batch:
            found = transcript.fetch_one(batch, row_id)
            turn_row = batch.row(_TURN, row_id=row_id)
        message, turn = transcript.one_message(work, row_id, *found, files=how), turn_of(turn_row.result)
        runs = turn is not None and turn.message_id == row_id and turn.running(work.now())
        return chunks_of(message, ai_sdk=major, finished=not runs)

    @reads
    def cursor(self, session_id: str, message_id: str) -> str:
        """The place after all that an assistant message holds now, for a client that has it already.

        `follow(session_id, cursor)` then yields what comes, also if the answer has ended by then. The message may be the running
        turn's, with no part yet. Raises NotFound if the message is no assistant's of this session, or is hidden.
        """
        work, message_id = self._work, self._work.label("message_id", message_id)
        seen = snapshot_turn(work, work.label("session_id", session_id), message_id, 0)
        sent = SentChunks(message_id)
        if seen.metadata is not None:
            for _ in missing_chunks(sent, seen.metadata, seen.parts):
                pass  # what was sent is noted chunk by chunk
        elif seen.turn is None or seen.turn.message_id != message_id or not seen.turn.running(work.now()):
            raise NotFound("message", message_id)
        return encode_cursor(sent)

    @writes
    def update_metadata(self, id: str, patch: Mapping[str, Json]) -> ChatMessage:
        """Merge a patch (RFC 7396) into the metadata: null removes. Raises InvalidValue for keys of queue and rewind."""
        return queueing.patch_metadata(self._work, self._work.label("id", id), self._work.json_object("patch", patch))

    @reads
    def model_view(
        self, session_id: str, *, summary_as: Literal["text", "data"] = "text", files: Literal["data", "reference"] = "data"
    ) -> List[UIMessage]:
        """The messages to send to the model: after a compaction the summary, the kept tail, and everything since.

        The summary is a user message with a text part, which converters to model messages pass on and providers accept first.
        With `summary_as="data"` it is the stored message; converting its `data-compaction` part is then up to the caller.
        """
        work, session_id = self._work, self._work.label("session_id", session_id)
        how = check_choice("files", files, Files)
        return branching.model_view(work, session_id, check_choice("summary_as", summary_as, SummaryAs), how)

    @writes
    def compact(
        self, session_id: str, *, summary: str, tail_start_id: str | None, auto: bool, summary_tokens: int
    ) -> ChatMessage:
        """Append a compaction: a message with one part, the summary and the id where the kept tail starts. No message is hidden.

        Raises NotFound without the session, or if it shows no message `tail_start_id`.
        """
        return branching.compact(
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
        given = _metadata(Role.USER, work.json_object("metadata", metadata))
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
        cost_usd: Amount = 0.0,
    ) -> None:
        """Add a step's usage, as the SDK reports it, to the message and session. Recording a step again changes nothing.

        Counts are tokens, `cost_usd` US dollars. Raises NotFound without the message.
        """
        counts = usage.step_counts(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            reasoning_tokens=reasoning_tokens,
            cache_read_tokens=cache_read_tokens,
            cache_write_tokens=cache_write_tokens,
            cost_usd=cost_usd,
        )
        work = self._work
        id, window = work.label("message_id", message_id), window_of(work.runtime.settings)
        usage.add_step(work, id, usage.check_step(step), counts, work.now(), window)

    @writes
    def answer_approval(self, session_id: str, approval_id: str, *, approved: bool, reason: str | None = None) -> bool:
        """Answer a visible open approval; False if no such approval is open. Call it before the turn is resumed."""
        work = self._work
        session_id, approval_id = work.label("session_id", session_id), work.label("approval_id", approval_id)
        if type(approved) is not bool:
            raise InvalidValue("approved", "expected True or False.")
        if reason is not None:
            work.body("reason", reason)
        with work.batch() as batch:
            session = batch.row(LOCK_SESSION, row_id=session_id)
            requested = batch.rows(_REQUESTED, session_id=session_id)
        session.must_exist("session", session_id)
        response = {"approvalId": approval_id, "approved": approved} | ({} if reason is None else {"reason": reason})
        for id, kind, data in requested.result:
            if is_part(data) and approval_of(data) == approval_id:
                text, state = work.json("approval", with_approval_response(data, response)), ToolState.APPROVAL_RESPONDED
                work.run_last(REWRITE_PART, row_id=id, new_type=kind, new_tool_state=state, data=text, at=work.now())
                return True
        return False

    @writes
    def repair_interrupted(
        self, session_id: str | None = None, *, idle: timedelta = timedelta(minutes=5), human_input_tools: Iterable[str] = ()
    ) -> int:
        """After a restart: turn tool parts that a dead turn left unfinished into errors; the number of parts changed.

        Sessions with a live turn are skipped, and so are open approvals and calls of `human_input_tools`. Without `session_id`
        all sessions are repaired, but only messages not updated for `idle`.
        """
        work = self._work
        if session_id is not None:
            work.label("session_id", session_id)
        return repair.repair(work, session_id, idle=idle, human_input_tools=_names("human_input_tools", human_input_tools))


def _shown(work: UnitOfWork, session_id: str, include_hidden: bool, limit: int | None, before: str | None) -> dict[str, Any]:
    """Which messages of a session are listed."""
    session, anchor = work.label("session_id", session_id), None if before is None else work.label("before", before)
    return {"session_id": session, "include_hidden": include_hidden, "limit": limit, "before": anchor}


def _metadata(role: Role, metadata: Json) -> dict[str, Any]:
    """A message's metadata as a dict. A user's `model` becomes the session's: InvalidValue if it is no object."""
    given = plain_object(metadata, "metadata")
    if role is Role.USER:
        plain_object(given.get("model"), "metadata.model")
    return given


def _names(path: str, tools: Iterable[str]) -> frozenset[str]:
    names = check_list(path, tools)
    if not all(isinstance(name, str) for name in names):
        raise InvalidValue(path, "expected a list of tool names.")
    return frozenset(names)
