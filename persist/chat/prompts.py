"""System prompts, stored once by the sha256 of their text."""

from sqlalchemy import select

from persist.chat.flush import ADD_PROMPT
from persist.chat.models import prompts
from persist.chat.options import digest_of
from persist.db.hot import Hot, param
from persist.db.repository import Repository, reads, writes
from persist.errors import NotFound

_GET = Hot(select(prompts.c.body).where(prompts.c.digest == param("row_id")))


class SystemPrompts(Repository):
    """`tx.chat.prompts`."""

    @writes
    def put(self, body: str) -> str:
        """Keep a prompt; its digest (64 hex digits). The same text again is the same row."""
        work = self._work
        digest = digest_of(work.body("body", body))
        work.run(ADD_PROMPT, digest=digest, body=body, created_at=work.now())
        return digest

    @reads
    def get(self, digest: str) -> str:
        """The text of a digest; NotFound."""
        row = self._work.row(_GET, row_id=self._work.label("digest", digest))
        if row is None:
            raise NotFound("system prompt", digest)
        body: str = row[0]
        return body
