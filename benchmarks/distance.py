"""A network in a box: a process between this one and a Postgres server that keeps everything back for half a millisecond."""

import selectors
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from psycopg import conninfo
from sqlalchemy.engine import URL, make_url

from tests.roundtrips.proxy import accepted, address_of, received

ONE_WAY = 0.0005
"""Seconds from either end to the other."""


@contextmanager
def at_a_distance(url: str) -> Iterator[str]:
    """The URL of the same database behind a proxy, which ends with the block, or with this process if that dies."""
    command = [sys.executable, "-m", "benchmarks.distance", url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as proxy:
        try:
            assert proxy.stdout is not None
            port = int(proxy.stdout.readline())
            yield _through(make_url(url), port).render_as_string(hide_password=False)
        finally:
            proxy.kill()


def _through(url: URL, port: int) -> URL:
    """Without encryption, so that the server sees the same as over its socket."""
    near = url.difference_update_query(("host", "port")).set(host="127.0.0.1", port=port)
    return near.update_query_dict({"sslmode": "disable", "gssencmode": "disable"})


class _Link:
    """One connection of a client and the proxy's own to the server, and what is under way between them."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.ends = (client, server)
        self.under_way: deque[tuple[float, socket.socket, bytes]] = deque()


class Proxy:
    """Passes bytes on in one thread, each piece when it is due. `select` waits for fractions of a millisecond, epoll does not."""

    def __init__(self, url: str) -> None:
        self._target = address_of(conninfo.conninfo_to_dict(url))
        self._links: list[_Link] = []
        self._selector = selectors.SelectSelector()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(sys.stdin, selectors.EVENT_READ, sys.exit)

    def run(self) -> None:
        """Until standard input ends."""
        while True:
            due = min((link.under_way[0][0] for link in self._links if link.under_way), default=None)
            for key, _ in self._selector.select(None if due is None else max(0.0, due - time.perf_counter())):
                key.data()
            now = time.perf_counter()
            for link in tuple(self._links):
                while link.under_way and link.under_way[0][0] <= now:
                    _, end, data = link.under_way.popleft()
                    with suppress(OSError):  # that end has gone, which reading from it tells
                        end.sendall(data)

    def _accept(self) -> None:
        ends = accepted(self._listener, self._target, len(self._links))
        if ends is None:
            return
        client, server = ends
        link = _Link(client, server)
        self._links.append(link)
        self._selector.register(client, selectors.EVENT_READ, self._passing(link, client, server))
        self._selector.register(server, selectors.EVENT_READ, self._passing(link, server, client))

    def _passing(self, link: _Link, origin: socket.socket, destination: socket.socket) -> Callable[[], None]:
        def take() -> None:
            if link not in self._links:  # it was dropped in the same turn
                return
            if data := received(origin):
                link.under_way.append((time.perf_counter() + ONE_WAY, destination, data))
            else:
                self._drop(link)

        return take

    def _drop(self, link: _Link) -> None:
        self._links.remove(link)
        for end in link.ends:
            self._selector.unregister(end)
            end.close()


if __name__ == "__main__":
    proxy = Proxy(sys.argv[1])
    print(proxy.port, flush=True)
    proxy.run()
