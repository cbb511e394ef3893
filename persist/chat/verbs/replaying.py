"""Replaying a stored message as chunks, and following it from its present end."""

from sqlalchemy import select

from persist.chat.following.cursor import encode_cursor
from persist.chat.following.reading import look_at
from persist.chat.following.rendering import Sent, missing_chunks
from persist.chat.models import messages, turns
from persist.chat.reducer.replaying import Chunk, chunks_of
from persist.chat.schemas import Files
from persist.chat.storage import transcript
from persist.chat.storage.turns import TURN, turn_of
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import NotFound
from persist.settings import AiSdk

_T = turns.c
_session = select(messages.c.session_id).where(messages.c.id == param("row_id")).scalar_subquery()
_TURN = Statement(select(*TURN).where(_T.session_id == _session))


def replay(work: UnitOfWork, id: str, ai_sdk: object, files: Files) -> list[Chunk]:
    """The chunks of a stored message, without their end while its turn runs."""
    major = work.runtime.settings.ai_sdk if ai_sdk is None else AiSdk.of(ai_sdk)
    with work.batch() as batch:
        found = transcript.fetch_one(batch, id)
        turn_row = batch.row(_TURN, row_id=id)
    message, turn = transcript.one_message(work, id, *found, files=files), turn_of(turn_row.result)
    runs = turn is not None and turn.message_id == id and turn.running(work.now())
    return chunks_of(message, ai_sdk=major, finished=not runs)


def cursor(work: UnitOfWork, session_id: str, message_id: str) -> str:
    """The cursor of a follower that was given all of a message, which is nothing of one that was only begun. Raises NotFound."""
    look = look_at(work, session_id, message_id, 0)
    sent = Sent(message_id)
    if look.metadata is not None:
        for _ in missing_chunks(sent, look.metadata, look.parts):
            pass  # what was sent is noted chunk by chunk
    elif look.turn is None or look.turn.message_id != message_id or not look.turn.running(work.now()):
        raise NotFound("message", message_id)
    return encode_cursor(sent)
