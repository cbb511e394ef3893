"""Reads from the settings how long the rows of each domain are kept. Without such a setting, rows are kept for ever."""

from dataclasses import dataclass
from datetime import timedelta

from persist.maintenance.pruning import PRUNINGS
from persist.settings import Settings


@dataclass(frozen=True, slots=True)
class Policy:
    """Prune finished rows of a domain that are older than `older_than`, except the newest `keep`."""

    domain: str
    older_than: timedelta
    keep: int


def policies(settings: Settings) -> list[Policy]:
    """Return a policy for each domain whose `<domain>_keep_days` is set."""
    found = []
    for domain in PRUNINGS:
        days: float | None = getattr(settings, f"{domain}_keep_days")
        if days is not None:
            keep: int = getattr(settings, f"{domain}_keep_last")
            found.append(Policy(domain=domain, older_than=timedelta(days=days), keep=keep))
    return found
