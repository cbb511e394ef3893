"""The server of the chat: what useChat posts goes into the store, and what is said comes out of it, in whatever process.

`application(url, agent)` is an ASGI application. The header `x-forwarded-user` says who asks: the proxy that logs people in sets
that header. Without a proxy there is one person.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.responses import FileResponse, PlainTextResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles
from pydantic_ai import Agent

from persist import AsyncStore, sse
from persist.chat.schemas import ChatSession, UIMessage
from persist.errors import Conflict, InvalidValue, NotFound, PayloadTooLarge, PersistError, StoreBusy, Unavailable

from .answers import Answers
from .assistant import CLIENT_TOOLS

PAGE = Path(__file__).with_name("page")
MAX_BODY = 20 * 2**20
MAX_MESSAGES = 1000
STATUS = {PayloadTooLarge: 413, InvalidValue: 422, NotFound: 404, Conflict: 409, StoreBusy: 503, Unavailable: 503}

routes = APIRouter()


def application(url: str, agent: Agent[None, Any]) -> FastAPI:
    """The chat on the database of that URL, `sqlite:///FILE` or `postgresql://…`."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncStore.open(url) as store:
            app.state.store, app.state.answers = store, Answers(store, agent)
            yield
            await app.state.answers.close()

    app = FastAPI(lifespan=lifespan)
    app.include_router(routes)
    app.mount("/", StaticFiles(directory=PAGE / "dist"))
    app.add_exception_handler(PersistError, _refused)
    app.add_exception_handler(HTTPException, _unfit)
    return app


# ---------------------------------------------------------------- who asks, for what


async def the_owner(request: Request) -> str:
    """Who asks."""
    return request.headers.get("x-forwarded-user") or "me"


async def the_store(request: Request) -> AsyncStore:
    """The store of this process."""
    store: AsyncStore = request.app.state.store
    return store


async def posted(request: Request) -> dict[str, Any]:
    """The JSON object that was posted. A browser lets a page of another origin post no JSON."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "Post JSON, with content-type: application/json.")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY:
            raise HTTPException(413, f"The message is larger than {MAX_BODY >> 20} MiB.")
    try:
        value = orjson.loads(body)
    except ValueError:
        raise HTTPException(400, "The body is no JSON.") from None
    if not isinstance(value, dict):
        raise HTTPException(422, "The body must be a JSON object.")
    return value


Owner = Annotated[str, Depends(the_owner)]
Store = Annotated[AsyncStore, Depends(the_store)]
Posted = Annotated[dict[str, Any], Depends(posted)]


async def own_session(store: AsyncStore, id: Any, owner: str) -> ChatSession:
    """The session, which belongs to that person. Raises NotFound, of another person's as well."""
    session = await store.chat.sessions.get(id)
    if session.owner != owner:
        raise NotFound("session", id)
    return session


# ---------------------------------------------------------------- questions and answers


@routes.post("/api/chat")
async def send(request: Request, body: Posted, store: Store, owner: Owner) -> Response:
    """Take in what useChat posts, begin to answer it, and follow the answer."""
    ui_messages: Any = body.get("messages")
    if isinstance(ui_messages, list) and len(ui_messages) > MAX_MESSAGES:
        raise HTTPException(413, f"The list has more than {MAX_MESSAGES} messages.")
    session = await own_session(store, body.get("id"), owner)
    async with store.begin() as tx:
        messages = tx.chat.messages
        await messages.repair_interrupted(session.id, human_input_tools=CLIENT_TOOLS)  # of a process that died
        synced = await messages.sync(
            session.id, ui_messages, trigger=body.get("trigger"), message_id=body.get("messageId"), client_tools=CLIENT_TOOLS
        )
        history = await messages.model_view(session.id)
        if history and "title" not in session.metadata:
            await tx.chat.sessions.update_metadata(session.id, {"title": title_of(history[0])})
    if synced.running:
        return following(store, session.id)
    if synced.answered_by:  # asked again after a lost connection
        return StreamingResponse(sse.encode(await store.chat.messages.replay(synced.answered_by)), headers=sse.HEADERS)
    cursor = None
    if history and (history[-1]["role"] == "user" or history[-1]["id"] == synced.continues):
        cursor = await request.app.state.answers.start(session.id, history, synced.continues)
    return following(store, session.id, cursor)


@routes.get("/api/chat/{id}/stream")
async def resume(id: str, store: Store, owner: Owner) -> Response:
    """The running answer from its beginning; 204 if none runs."""
    await own_session(store, id, owner)
    if await store.chat.sessions.turn(id) is None:
        return Response(status_code=204)
    return following(store, id)


@routes.post("/api/chat/{id}/stop", dependencies=[Depends(posted)])
async def stop(id: str, store: Store, owner: Owner) -> dict[str, bool]:
    """Ask the process that answers to stop."""
    await own_session(store, id, owner)
    return {"stopped": await store.chat.sessions.request_stop(id)}


def following(store: AsyncStore, session_id: str, cursor: str | None = None) -> Response:
    """A response with the running answer of a session. A browser that leaves does not end the answer."""

    async def frames() -> AsyncIterator[bytes]:
        async with store.follow(session_id, cursor) as chunks:
            async for frame in sse.encode_async(chunks):
                yield frame

    return StreamingResponse(frames(), headers=sse.HEADERS)


# ---------------------------------------------------------------- sessions


@routes.get("/api/sessions")
async def sessions(store: Store, owner: Owner) -> list[dict[str, Any]]:
    """The person's sessions, the latest active first."""
    page = await store.chat.sessions.list(owner=owner, limit=50)
    return [{"id": session.id, "title": session.metadata.get("title", "New chat")} for session in page.items]


@routes.post("/api/sessions", dependencies=[Depends(posted)])
async def create(store: Store, owner: Owner) -> dict[str, str]:
    """Create a session."""
    return {"id": (await store.chat.sessions.create(agent="assistant", model={}, owner=owner)).id}


@routes.get("/api/sessions/{id}")
async def history(id: str, store: Store, owner: Owner) -> Response:
    """The messages of a session, large files as references, and whether an answer runs."""
    await own_session(store, id, owner)
    async with store.read() as tx:
        running = await tx.chat.sessions.turn(id) is not None
        messages = await tx.chat.messages.list_json(id, files="reference")
    return Response(b'{"running":%s,"messages":%s}' % (orjson.dumps(running), messages), media_type="application/json")


@routes.get("/api/sessions/{id}/files/{digest}")
async def file(id: str, digest: str, store: Store, owner: Owner) -> Response:
    """A file of a message, for whom the session belongs to. A browser shows it as an image, and never opens it as a page."""
    await own_session(store, id, owner)
    found = await store.chat.messages.file(id, digest)
    headers = {"content-disposition": "attachment", "x-content-type-options": "nosniff", "cache-control": "private, immutable"}
    return StreamingResponse(await store.blobs.open(found.sha256), headers=headers, media_type=found.media_type)


@routes.post("/api/sessions/{id}/fork")
async def fork(id: str, body: Posted, store: Store, owner: Owner) -> dict[str, str]:
    """A new session with the messages up to one of them."""
    await own_session(store, id, owner)
    message_id: Any = body.get("messageId")
    return {"id": (await store.chat.sessions.fork(id, message_id)).id}


def title_of(message: UIMessage) -> str:
    """The beginning of a question."""
    text = " ".join(part["text"] for part in message["parts"] if part["type"] == "text")
    return " ".join(text.split())[:60] or "New chat"


# ---------------------------------------------------------------- the page, and refusals


@routes.get("/")
async def page() -> Response:
    """The page."""
    return FileResponse(PAGE / "index.html")


async def _refused(request: Request, error: Exception) -> Response:
    """What the store refuses, as one sentence: useChat shows it as the message of its error."""
    status = next((number for kind, number in STATUS.items() if isinstance(error, kind)), None)
    if status is None:
        raise error
    return PlainTextResponse(str(error), status)


async def _unfit(request: Request, error: Exception) -> Response:
    """What cannot be read at all, as one sentence, too."""
    assert isinstance(error, HTTPException)
    return PlainTextResponse(error.detail, error.status_code)
