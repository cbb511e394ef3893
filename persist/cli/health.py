"""An HTTP endpoint that says whether a worker works: 200, or 503 with the reason."""

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

import click

from persist.cli.output import inline
from persist.cli.root import Failed, redacted

Address = tuple[str, int]

_ADDRESS = re.compile(r"(?:\[([^\]]+)\]|([^:\[\]\s]+)):(\d{1,5})", re.ASCII)
_PATIENCE = 2.0
"""Seconds that a request waits for the database."""
_FRESH = 1.0
"""Seconds for which one look answers all requests."""
_LONGEST = 5.0
"""Seconds after which a request is cut off, however slowly it is sent."""
_AT_ONCE = 8
"""Requests that are answered at a time; of more the connection is closed."""


def to_address(ctx: click.Context, param: click.Parameter, value: str | None) -> Address | None:
    """For `callback=` of an option: HOST:PORT, or [HOST]:PORT with a colon in the host."""
    if value is None:
        return None
    match = _ADDRESS.fullmatch(value)
    if match is None or int(match[3]) > 65_535:
        raise click.BadParameter(f"expected HOST:PORT such as 127.0.0.1:8080, got {inline(repr(value))}.")
    return match[1] or match[2], int(match[3])


@contextmanager
def answering(address: Address, trouble: Callable[[], str | None], about: Mapping[str, Any]) -> Iterator[str]:
    """Answer requests during the block, at the URL that it gets. `trouble`: what is wrong, if anything. `about`: told as well."""
    try:
        server = _Server(address, _Look(trouble), about)
    except OSError as error:
        raise Failed(f"--health {address[0]}:{address[1]}: {error.strerror or error}.") from error
    thread = threading.Thread(target=server.serve_forever, args=(0.2,), name="persist-health", daemon=True)
    thread.start()
    try:
        yield server.url
    finally:
        server.shutdown()
        server.server_close()


class _Look:
    """Looks at the worker, one look at a time, in a thread of its own: a database that hangs holds up no answer."""

    def __init__(self, trouble: Callable[[], str | None]) -> None:
        self._trouble = trouble
        self._lock = threading.Lock()
        self._seen: threading.Event | None = None
        """Set when the look is over that goes on."""
        self._found: str | None = None
        self._fresh_until = 0.0

    def __call__(self) -> str | None:
        """The reason why the worker does not work; None if it works."""
        with self._lock:
            seen = self._seen
            if seen is None:
                if time.monotonic() < self._fresh_until:
                    return self._found
                seen = self._seen = threading.Event()
                threading.Thread(target=self._look, args=(seen,), name="persist-health-look", daemon=True).start()
        if not seen.wait(_PATIENCE):
            return f"the database has not answered within {_PATIENCE:g} seconds"
        return self._found

    def _look(self, seen: threading.Event) -> None:
        try:
            found = self._trouble()
        except Exception as error:  # a look that fails is no good sign
            found = f"{type(error).__name__}: {error}"
        with self._lock:
            self._found, self._fresh_until, self._seen = found, time.monotonic() + _FRESH, None
        seen.set()


class _Server(ThreadingHTTPServer):
    daemon_threads, block_on_close = True, False

    def __init__(self, address: Address, look: _Look, about: Mapping[str, Any]) -> None:
        self.look, self.about = look, about
        self._free = threading.BoundedSemaphore(_AT_ONCE)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Request)

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        return f"http://[{host!s}]:{port}" if ":" in str(host) else f"http://{host!s}:{port}"

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # without asking the network for the name of this machine
        self.server_name, self.server_port = "", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class _Request(BaseHTTPRequestHandler):
    server: _Server
    timeout = _LONGEST

    def setup(self) -> None:
        super().setup()
        self._limit = threading.Timer(_LONGEST, self._cut_off)
        self._limit.daemon = True
        self._limit.start()

    def finish(self) -> None:
        self._limit.cancel()
        super().finish()

    def _cut_off(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        reason = self.server.look()
        said = {"status": "ok"} if reason is None else {"status": "unavailable", "reason": redacted(reason)}
        body = json.dumps(said | dict(self.server.about)).encode() + b"\n"
        self.send_response(200 if reason is None else 503)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def version_string(self) -> str:
        return "persist"

    def log_message(self, format: str, *args: Any) -> None:
        """A probe every few seconds is no news."""
