"""The rules of following one session, for both faces: what each look yields, and when the stream is over."""

from collections.abc import Iterator

from persist.chat.following.cursor import decode_cursor, encode_cursor
from persist.chat.following.reading import Look, look_at
from persist.chat.following.rendering import Chunk, Sent, ending_chunks, missing_chunks
from persist.chat.schemas import STOPPED_AT, TurnState
from persist.chat.storage.turns import Turn
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_label
from persist.errors import InvalidValue
from persist.settings import AiSdk


class Following:
    """The place of one follower. A look reads in a transaction; `chunks` turns it into what the follower lacks."""

    def __init__(self, runtime: Runtime, session_id: str, cursor: str | None, ai_sdk: int | None) -> None:
        runtime.check_usable()
        if not check_label("session_id", session_id):
            raise InvalidValue("session_id", "it is empty.")
        self._runtime = runtime
        self._ai_sdk = runtime.settings.ai_sdk if ai_sdk is None else AiSdk.of(ai_sdk)
        self.session_id = session_id
        self._sent = None if cursor is None else decode_cursor(cursor)
        self.over = False
        """Whether the stream has ended."""
        self.looks_again = False
        """Whether to look again at once, without waiting for a change."""
        self._gone: str | None = None

    @property
    def cursor(self) -> str | None:
        """The place after the last chunk; None before the first one."""
        return None if self._sent is None else encode_cursor(self._sent)

    def look(self, work: UnitOfWork) -> Look:
        """Look at the session. Raises NotFound without it, or if the cursor names a message of another one."""
        sent = self._sent
        return look_at(work, self.session_id, None if sent is None else sent.message_id, 0 if sent is None else sent.settled)

    def chunks(self, look: Look) -> Iterator[Chunk]:
        """The chunks that the follower lacks after this look. None come while the turn is silent."""
        turn = look.turn
        running = turn is not None and self._runs(turn)
        if self._sent is None:
            if turn is None or not running:
                self.over = True
                return
            if look.metadata is None or turn.message_id is None:
                return  # its first part is not stored yet
            self._sent = Sent(turn.message_id)
        sent = self._sent
        goes_on = turn is not None and turn.message_id == sent.message_id
        if look.metadata is not None:
            # a dead recorder's turn is no end: the next one may write the other half of the text's last character
            final = turn is None or not goes_on or turn.state != TurnState.RUNNING
            for chunk in missing_chunks(sent, look.metadata, look.parts, final=final, ai_sdk=self._ai_sdk):
                sent.ended = sent.step_ended = False
                yield chunk
        if running and goes_on and (look.metadata is not None or not sent.started):
            return
        if look.metadata is None and sent.started:
            last = "abort"
        elif turn is None or not goes_on:
            stopped = look.metadata is not None and look.metadata.get(STOPPED_AT) is not None
            last = "finish" if sent.started and not stopped else "abort"
        else:
            last = "error" if turn.state == TurnState.ERROR else "abort"
        yield from ending_chunks(sent, last)
        self.over = True

    def _runs(self, turn: Turn) -> bool:
        """Whether the turn runs. One whose recorder is gone is looked at once more: it may have finished since this look."""
        known, self._gone = self._gone, None
        if not turn.running(self._runtime.clock()) and turn.state == TurnState.RUNNING:
            self._gone = turn.owner
        self.looks_again = self._gone is not None and self._gone != known
        return turn.state == TurnState.RUNNING and (self._gone is None or self.looks_again)
