"""`tx.blobs` of AsyncStore."""

from persist.blobs.putting import made_ready
from persist.blobs.repository import Blobs
from persist.db.transactions.async_transactions import AsyncRepository, AsyncWork, awaitable


class AsyncBlobs(AsyncRepository[Blobs]):
    """See Blobs."""

    put = awaitable(Blobs.put, ready=made_ready)
    get = awaitable(Blobs.get)
    read = awaitable(Blobs.read)
    open = awaitable(Blobs.open)
    list = awaitable(Blobs.list)
    delete = awaitable(Blobs.delete)


def async_blobs(work: AsyncWork) -> AsyncBlobs:
    """`tx.blobs` of one async transaction."""
    return AsyncBlobs(Blobs(work.work), work)
