"""What the verbs of Tenants return."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant, and the key of the server that it is on: "" where there is one server."""

    name: str
    server: str


class UpgradeStatus(StrEnum):
    """What became of a tenant in `upgrade_all`."""

    UPGRADED = "upgraded"
    CURRENT = "current"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class UpgradeOutcome:
    """What `upgrade_all` did with one tenant. `found`: its revision before; `error`: why it failed, in one sentence."""

    tenant: str
    server: str
    status: UpgradeStatus
    found: str | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class UpgradeReport:
    """The outcome of every tenant, by server and name."""

    outcomes: tuple[UpgradeOutcome, ...]

    @property
    def failed(self) -> tuple[UpgradeOutcome, ...]:
        """The outcomes of the tenants that could not be upgraded, and are as they were."""
        return tuple(outcome for outcome in self.outcomes if outcome.status is UpgradeStatus.FAILED)

    def count(self, status: UpgradeStatus) -> int:
        """How many tenants have that status."""
        return sum(outcome.status is status for outcome in self.outcomes)
