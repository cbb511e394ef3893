"""Another process: `python -m tests.integrations.mcp.worker URL` stores events of one session and says the id of each."""

import asyncio
import sys

from mcp.types import JSONRPCNotification

from persist import Store
from persist.integrations.mcp import PersistEventStore


async def main(url: str) -> None:
    with Store.open(url) as store:
        session = PersistEventStore(store).for_session("killed")
        for number in range(100_000):
            message = None if number == 0 else JSONRPCNotification(jsonrpc="2.0", method="n", params={"n": number})
            print(await session.store_event("1", message), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
