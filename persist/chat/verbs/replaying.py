"""Replaying a stored message as chunks."""

from sqlalchemy import select

from persist.chat.models import messages, turns
from persist.chat.reducer.replaying import Chunk, chunks_of
from persist.chat.schemas import Files
from persist.chat.storage import transcript
from persist.chat.storage.turns import TURN, turn_of
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
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
