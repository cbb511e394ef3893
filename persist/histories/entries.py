"""`tx.histories.entries`: messages, and the histories that end at one."""

from sqlalchemy import select

from persist.db.statements.prepared import Statement, param
from persist.db.transactions.repository import F, Repository, reads
from persist.histories.lines import ENTRY, AskedHistory
from persist.histories.models import entries
from persist.histories.schemas import Entry
from persist.histories.validation import whole_number

_GET = Statement(select(*ENTRY.columns).where(entries.c.id == param("row_id")))


class HistoryEntries(Repository[F]):
    """`tx.histories.entries`. They are stored by `tx.histories.records.put`, and never changed."""

    @reads
    def get(self, id: str) -> Entry:
        """The entry. Raises NotFound."""
        return ENTRY.found(self._work.row(_GET, row_id=self._work.label("id", id)), "history entry", id)

    @reads
    def list(self, head_id: str, *, limit: int | None = None) -> list[Entry]:
        """The entries from the first one to `head_id`, in order, or the last `limit` of them; none that cannot be read.

        Raises NotFound for an unknown head, and StoreCorrupt if another program's rows are no chain of messages.
        """
        work = self._work
        head_id = work.label("head_id", head_id)
        maximum = None if limit is None else whole_number("limit", limit, minimum=0)
        with work.batch() as batch:
            asked = AskedHistory(batch, head_id, maximum)
        return asked.readable(work)
