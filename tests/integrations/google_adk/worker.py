"""Another process: `append URL NAME` appends events until it is killed; `race URL NAME` shares one session and one artifact."""

import asyncio
import sys

from google.adk.errors import StaleSessionError
from google.genai import types

from persist import Store
from persist.integrations.google_adk import PersistArtifactService, PersistSessionService
from tests.integrations.google_adk.scenes import NAMES, create, event, get


async def append(store: Store, name: str) -> None:
    service = PersistSessionService(store)
    session = await create(service, id=name)
    for number in range(10_000):
        delta = {"n": number, "user:n": number, "app:n": number}
        await service.append_event(session, event(f"{number}", delta, timestamp=float(number)))
        print(number, flush=True)


async def race(store: Store, name: str) -> None:
    """Append ten events to the one session, reading it again each time another process was faster; save ten versions."""
    service, files = PersistSessionService(store), PersistArtifactService(store)
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(10):
        while True:
            session = await get(service)
            try:
                await service.append_event(session, event(f"{name} {number}", {f"user:{name}.{number}": number}))
            except StaleSessionError:
                continue
            break
        part = types.Part(inline_data=types.Blob(data=f"{name} {number}".encode(), mime_type="a/b"))
        await files.save_artifact(**NAMES, session_id="talk", filename="shared", artifact=part)


def main() -> None:
    command, url, name = sys.argv[1:]
    with Store.open(url) as store:
        asyncio.run({"append": append, "race": race}[command](store, name))


if __name__ == "__main__":
    main()
