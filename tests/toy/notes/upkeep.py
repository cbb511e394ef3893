"""Upkeep of notes."""

from persist.db.operations.erasing import OWNER, equal
from persist.db.operations.upkeep import Upkeep, aged, erasable, exported

from .models import NOTES

_PRUNING, _ERASING = aged(NOTES, NOTES.root.c.updated_at), erasable(NOTES, {OWNER: equal(NOTES.root.c.owner)})
UPKEEP = Upkeep(prunings=(_PRUNING,), erasables=(_ERASING,), exports=(exported(NOTES, "note"),))
