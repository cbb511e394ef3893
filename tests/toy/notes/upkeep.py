"""Upkeep of notes."""

from persist.db.operations.erasing import OWNER, equal
from persist.db.operations.upkeep import Upkeep, aged, erasable, exported

from .models import NOTES

UPKEEP = Upkeep(
    prunings=(aged(NOTES, NOTES.root.c.updated_at),),
    erasables=(erasable(NOTES, {OWNER: equal(NOTES.root.c.owner)}),),
    exports=(exported(NOTES, "note"),),
)
