"""`tx.chat.prompts`: system prompts, each stored once under the sha256 of its text."""

from sqlalchemy import select

from persist.chat.models import prompts
from persist.chat.recording.flush import ADD_PROMPT
from persist.chat.recording.options import digest_of
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.errors import NotFound

_GET = Statement(select(prompts.c.body).where(prompts.c.digest == param("row_id")))


class SystemPrompts(Repository[F]):
    """`tx.chat.prompts`."""

    @writes
    def put(self, body: str) -> str:
        """Store a prompt and return its sha256 (64 hex digits). Equal text is stored once."""
        work = self._work
        digest = digest_of(work.body("body", body))
        with work.batch(last=True) as batch:
            batch.run(ADD_PROMPT, digest=digest, body=body, created_at=work.now())
        return digest

    @reads
    def get(self, digest: str) -> str:
        """The prompt with that digest. Raises NotFound."""
        row = self._work.row(_GET, row_id=self._work.label("digest", digest))
        if row is None:
            raise NotFound("system prompt", digest)
        body: str = row[0]
        return body
