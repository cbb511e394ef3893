"""Retention: what the settings say of how long the rows of each domain are kept. Nothing, unless they are set."""

from dataclasses import dataclass
from datetime import timedelta

from persist.maintenance.pruning import PRUNINGS
from persist.settings import Settings


@dataclass(frozen=True, slots=True)
class Policy:
    """What is over and older goes, but for the newest `keep`."""

    domain: str
    older_than: timedelta
    keep: int


def policies(settings: Settings) -> list[Policy]:
    """The domains whose `<domain>_keep_days` is set."""
    found = []
    for domain in PRUNINGS:
        days: float | None = getattr(settings, f"{domain}_keep_days")
        if days is not None:
            keep: int = getattr(settings, f"{domain}_keep_last")
            found.append(Policy(domain=domain, older_than=timedelta(days=days), keep=keep))
    return found
