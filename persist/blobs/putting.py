"""What an AsyncStore does before a put: an asynchronous source is read, and a large body is stored in short transactions."""

import asyncio
from collections.abc import AsyncIterable
from typing import Any

from persist.blobs.content import gathered, kept_open
from persist.blobs.repository import OCTETS, Blobs, next_step, staging
from persist.db.transactions.async_transactions import AsyncRepository, AsyncTransactionPerVerb


async def made_ready(
    own: AsyncRepository[Blobs], source: Any, media_type: str = OCTETS, **more: Any
) -> tuple[Any, dict[str, Any]]:
    """The arguments of the put that completes what was stored here."""
    if isinstance(source, AsyncIterable):
        source = await gathered(source)
    work = own._async_work
    if isinstance(work, AsyncTransactionPerVerb):
        source = await asyncio.to_thread(kept_open, source)
        steps, result = staging(source, media_type), None
        while (step := await asyncio.to_thread(next_step, steps, result)) is not None:
            do = step.do
            if step.transaction:
                result = await work.run(lambda unit, do=do: do(Blobs(unit)), True)  # type: ignore[misc]  # a bound default
            else:
                result = await asyncio.to_thread(do, Blobs(work.work))
    return (source, media_type), more
