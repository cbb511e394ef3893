"""Postgres's part in the event log: notifications that wake its readers. Each transaction tells the guards who keeps the log."""

import logging
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from sqlalchemy import Engine

from persist.db.dialects.event_log import EVENTS, EventLogSupport, Notify
from persist.db.dialects.postgres.timeouts import connection_timeouts
from persist.db.dialects.postgres.urls import server_url
from persist.db.dialects.postgres.wakeups import Notices, channel, notify
from persist.db.dialects.wakeups import Polling, Wakeups

log = logging.getLogger("persist")


class PostgresEventLog(EventLogSupport):
    """The event log in one schema of the engine's database. `pooled`: the engine connects through a transaction-mode pooler."""

    def __init__(self, engine: Engine, schema: str, *, pooled: bool) -> None:
        self._engine, self._schema, self.pooled = engine, schema, pooled
        self._said_polling = False
        self.notify = notify(schema, EVENTS)

    def leave_to_database(self, driver: Any) -> AbstractContextManager[None]:
        return nullcontext()  # the setting that keeps triggers silent is made by BEGIN, and a single statement has none

    def notification(self, topic: str) -> Notify | None:
        return notify(self._schema, topic)

    def wakeups(self, listen_url: str | None, topic: str = EVENTS) -> Wakeups:
        if listen_url is None and self.pooled:
            if not self._said_polling:
                self._said_polling = True
                log.warning(
                    "LISTEN needs a direct connection, and this one goes through a pooler: watching looks again and again;"
                    " give listen_url to be told at once"
                )
            return Polling()
        url = self._engine.url if listen_url is None else server_url(listen_url)
        _, parameters = self._engine.dialect.create_connect_args(url)  # several hosts are joined as libpq expects
        return Notices({**connection_timeouts(url), **parameters}, channel(self._schema, topic))
