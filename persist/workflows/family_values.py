"""Values and vocabularies of families of runs, and of gates that expire."""

from enum import StrEnum

from persist.db.values.frozen import Value


class JoinUntil(StrEnum):
    """What a run that joins its children waits for: all of them have ended, or one has failed or was cancelled."""

    ALL = "all"
    FIRST_FAILURE = "first_failure"


class OnExpiry(StrEnum):
    """What becomes of a gate that nobody answers in time, and of the run that is paused at it.

    rejected   the gate is rejected, and the run fails with the failure kind "expired"
    approved   the gate is approved, and the run goes on
    resumed    the gate is rejected, and the run goes on
    """

    REJECTED = "rejected"
    APPROVED = "approved"
    RESUMED = "resumed"


class Children(Value):
    """How many children a run has, by their status. A status that none of them has is left out."""

    total: int
    by_status: dict[str, int]

    @property
    def failed(self) -> int:
        """How many failed or were cancelled."""
        return self.by_status.get("failed", 0) + self.by_status.get("cancelled", 0)


class FamilyTotals(Value):
    """What a run and all its descendants cost together: the totals of their executions, and how many runs have which status.

    Sums of tokens are at most 2**63-1.
    """

    run_id: str
    runs: int
    by_status: dict[str, int]
    executions: int
    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    total_tokens: int
    """Input, output and cache-read tokens; cache writes are not counted."""
    cost_usd: float
