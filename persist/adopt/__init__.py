"""Taking over database files that other programs made: a backup first, then everything that is missing, in one transaction."""

from persist.adopt.adopting import adopt, adopt_if_foreign
from persist.adopt.report import AdoptReport
from persist.db.adopting import Notice, Settled

__all__ = ["AdoptReport", "Notice", "Settled", "adopt", "adopt_if_foreign"]
