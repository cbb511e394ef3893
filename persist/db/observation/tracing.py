"""What a tracer is told: the interface between the store and `persist.otel`, which alone knows OpenTelemetry.

A store without a tracer has None in its place, and asks for it once per transaction, verb and turn, never per row.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from persist.db.observation.counters import Outcome, RecorderTally


class VerbTrace(Protocol):
    """One call of a verb."""

    def ended(self, result: object, error: BaseException | None) -> None:
        """The verb returned or raised. Called on the thread on which the verb began."""


class StatementTrace(Protocol):
    """Whatever is told of executed statements."""

    def statement(self, sql: str, seconds: float, rows: int, sent: int, error: BaseException | None) -> None:
        """A statement was executed.

        seconds   how long it took
        rows      how many rows it changed; -1 if the driver does not say
        sent      the bytes of text and binary values that were sent with it
        """


class TransactionTrace(StatementTrace, Protocol):
    """One transaction, or a caller's transaction that was joined."""

    def within(self, context: Any, retries: int) -> None:
        """Take the context of the call, where the transaction begins on another thread, and the number of earlier attempts."""

    def began(self, waited: float) -> None:
        """The transaction began after so many seconds of waiting for the lock and a connection."""

    def verb(self, module: str, name: str) -> VerbTrace:
        """A verb begins: the module and the qualified name of its function."""

    def ended(self, outcome: Outcome, committing: float, error: BaseException | None) -> None:
        """The transaction ended, or could not begin."""


class TurnTrace(Protocol):
    """One turn of a recorder."""

    def ended(self, tally: RecorderTally, error: BaseException | None) -> None:
        """The recorder has ended. A second call does nothing."""


class RecorderTrace(StatementTrace, Protocol):
    """One transaction of recorders, for the tasks of one or of several turns."""

    def ended(self, error: BaseException | None) -> None:
        """The transaction ended."""


class Tracer(Protocol):
    """Traces one store."""

    @property
    def statements(self) -> bool:
        """Whether the recorders' statements are traced, too. A row of growing text costs less than telling of it."""

    def context(self) -> Any:
        """The caller's context."""

    def transaction(self, *, writable: bool, joined: bool) -> TransactionTrace | None:
        """A transaction is made, in the caller's context. None: it is not to be traced."""

    def turn(self, session_id: str, options: Mapping[str, Any]) -> TurnTrace:
        """A recorder is made."""

    def recorders(self, what: str, turns: Sequence[TurnTrace]) -> RecorderTrace:
        """Recorders write together, more than rows of growing text. `what`: the call that asked for it first."""
