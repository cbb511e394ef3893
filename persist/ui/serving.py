"""The server behind `persist ui`: a port that is free, a token where others reach it, and an end with viewers who look on."""

import secrets
import socket
from contextlib import suppress
from ipaddress import ip_address

import uvicorn

from persist.errors import InvalidValue, Unavailable
from persist.ui.protection import Guarded
from persist.ui.stores import ManyStores, OneStore

PORT = 8790
_TRIES = 50
"""How many ports are tried where none was asked for."""
_GRACE = 3
"""Seconds that a page has to be answered once the server is asked to stop."""


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach the address."""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def listen(host: str, port: int | None) -> socket.socket:
    """A socket on the port, or on the first free one from 8790 on. Raises Unavailable."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    tried = [port] if port is not None else list(range(PORT, PORT + _TRIES))
    reason = ""
    for number in tried:
        try:
            return socket.create_server((host, number), family=family)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
    raise Unavailable(f"{host}:{tried[0]}: {reason}" if port is not None else f"no free port on {host} from {PORT} on: {reason}")


class Server(uvicorn.Server):
    """Serves stores until a signal comes. `address`: what a person opens."""

    def __init__(self, stores: OneStore | ManyStores, host: str, port: int | None, token: str | None) -> None:
        if token is not None and (len(token) < 8 or not token.isascii() or not token.isprintable()):
            raise InvalidValue("token", "expected at least 8 printable ASCII characters.")
        own = is_loopback(host)
        self._stores, self._token = stores, token or (None if own else secrets.token_urlsafe(24))
        self._socket = listen(host, port)
        number = self._socket.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{number}/" + ("" if self._token is None else f"?token={self._token}")
        # elsewhere nobody knows under which names others reach this machine: there the token is what counts
        hosts = frozenset({"localhost", "127.0.0.1", "::1", host}) if own else None
        app = Guarded(stores, hosts, self._token)
        super().__init__(
            uvicorn.Config(
                app, log_level="warning", access_log=False, server_header=False, lifespan="off", timeout_graceful_shutdown=_GRACE
            )
        )

    def serve_until_stopped(self) -> None:
        """Answer requests until SIGINT or SIGTERM, then close the stores."""
        try:
            with suppress(KeyboardInterrupt):
                self.run([self._socket])
        finally:
            self._socket.close()
            self._stores.close()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End what is followed live first: it would not end by itself."""
        self._stores.end_streams()
        await super().shutdown(sockets)
