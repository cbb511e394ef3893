"""The clock of the database server, told without asking it each time: the processes that share a server agree on the time."""

import sys
import time
from datetime import UTC, datetime
from typing import Any

_ASK = (
    b"SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT), pg_backend_pid(),"
    b" EXISTS (SELECT 1 FROM pg_catalog.pg_extension WHERE extname = 'citus')"
)
_GOOD_FOR_NS = 600 * 1_000_000_000


def wall_ns() -> int:
    """Nanoseconds since 1970 on this machine's clock, which somebody may set."""
    return time.time_ns()


def steady_ns() -> int:
    """Nanoseconds on a clock that nobody sets, and that also runs while the machine is suspended, where there is one."""
    if sys.platform == "linux":
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return time.monotonic_ns()


class ServerClock:
    """A clock of a store that runs as the server's does since it was looked at last.

    The server's time is somewhere between sending the question and reading its answer. A machine whose own clock is within that
    time agrees with the server, and its clock is taken: then instants of the store compare with those of its process.
    """

    def __init__(self) -> None:
        self._ahead_ns: int | None = None
        """How much later it is on the server than on the steady clock; None until a connection has asked."""
        self._asked_ns = 0

    def __call__(self) -> datetime:
        return datetime.fromtimestamp(self.us() / 1_000_000, UTC)

    def us(self) -> int:
        """Microseconds since 1970."""
        return (wall_ns() if self._ahead_ns is None else steady_ns() + self._ahead_ns) // 1000

    def ms(self) -> int:
        """Whole milliseconds since 1970."""
        return self.us() // 1000

    @property
    def is_due(self) -> bool:
        """Whether the server was asked so long ago that the two clocks may have drifted apart."""
        return self._ahead_ns is None or steady_ns() - self._asked_ns > _GOOD_FOR_NS

    def ask(self, pgconn: Any, also: bytes = b"NULL") -> Any:
        """Ask the server over an idle libpq connection, and `also` for what that SQL says.

        The answer has its time, the id of the session's process, whether nodes of a cluster hold the database ("t"), and `also`.
        """
        sent, steady = wall_ns(), steady_ns()
        answer = pgconn.exec_(_ASK + b", " + also)
        if answer.ntuples == 1:
            took = steady_ns() - steady
            server = int(answer.get_value(0, 0)) * 1000
            agrees = sent - 1000 <= server <= sent + took + 1000
            self._ahead_ns = (sent if agrees else server - took // 2) - steady
            self._asked_ns = steady
        return answer
