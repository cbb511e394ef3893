"""Timeouts for connecting, for detecting a dead connection and for cancelling a statement; the defaults are hours."""

import contextlib
import os
import socket
import time
from typing import Any

from sqlalchemy import URL

SECRETS = ["password", "sslpassword", "oauth_client_secret"]
"""URL parameters that are never shown."""
_SECONDS = {"connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
_UNANSWERED_MS = 30_000
_GRACE = 5.0
"""Seconds for a cancellation to reach the server, and again for the cancelled statement to end."""


def connection_timeouts(url: URL) -> dict[str, Any]:
    """The timeout parameters of a new connection, without those that the URL or the environment sets."""
    chosen = {**_SECONDS, "tcp_user_timeout": _UNANSWERED_MS}
    if "PGCONNECT_TIMEOUT" in os.environ:
        del chosen["connect_timeout"]
    return {name: value for name, value in chosen.items() if name not in url.query}


def interrupt(psycopg: Any, driver: Any) -> None:
    """Cancel the statement that another thread runs on the connection; shut the connection down if the server does not answer."""
    deadline = time.monotonic() + 2 * _GRACE
    try:
        driver.cancel_safe(timeout=_GRACE)
    except psycopg.Error:
        deadline = 0.0
    while driver.pgconn.transaction_status == psycopg.pq.TransactionStatus.ACTIVE:
        if time.monotonic() > deadline:
            with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(driver.fileno())) as end:
                end.shutdown(socket.SHUT_RDWR)  # the waiting thread gets an error
            return
        time.sleep(0.01)
