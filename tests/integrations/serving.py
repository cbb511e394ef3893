"""A real server on the loopback device."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import uvicorn


@contextmanager
def served(app: Any, *, lifespan: Literal["on", "off"] = "off") -> Iterator[str]:
    """The address of an ASGI application, which serves on a port of its own until the block ends."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan=lifespan, timeout_graceful_shutdown=10))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(60)
