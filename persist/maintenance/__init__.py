"""Maintenance functions over an open store; the command line calls them too."""

from collections.abc import Callable
from functools import wraps
from inspect import isfunction, signature
from typing import Any

from persist.errors import InvalidValue
from persist.maintenance.backups import BackupReport, backup, checkpoint, vacuum
from persist.maintenance.checkups import Finding, doctor
from persist.maintenance.copying import CopyReport, copy
from persist.maintenance.describing import erd, stats
from persist.maintenance.erasing import EraseReport, erase, verify_report
from persist.maintenance.exporting import ExportReport, export
from persist.maintenance.importing import ImportReport, import_
from persist.maintenance.pruning import MaintenanceReport, MaintenanceStep, PruneReport, maintain, prunable, prune
from persist.maintenance.quarantine import Quarantined, quarantined, quarantined_row, restore_row
from persist.maintenance.rebuilding import rebuild
from persist.maintenance.resumable_copying import copy_resumably
from persist.schema.adopt import AdoptReport, adopt

__all__ = [
    "AdoptReport",
    "BackupReport",
    "CopyReport",
    "EraseReport",
    "ExportReport",
    "Finding",
    "ImportReport",
    "MaintenanceReport",
    "MaintenanceStep",
    "PruneReport",
    "Quarantined",
    "adopt",
    "backup",
    "checkpoint",
    "copy",
    "copy_resumably",
    "doctor",
    "erase",
    "erd",
    "export",
    "import_",
    "maintain",
    "prunable",
    "prune",
    "quarantined",
    "quarantined_row",
    "rebuild",
    "restore_row",
    "stats",
    "vacuum",
    "verify_report",
]

_STORES = ("store", "source", "target")


def _of_stores(function: Callable[..., Any], stores: dict[str, int]) -> Callable[..., Any]:
    """The function, which refuses whatever is no Store in the arguments of these names and places."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name, place in stores.items():
            given = args[place] if place < len(args) else kwargs.get(name, call)
            if given is not call and not hasattr(given, "runtime"):  # stores of tenants have one, too
                raise InvalidValue(
                    name,
                    f"expected a Store, got {type(given).__name__}; beside asyncio open one with Store.open in a thread: "
                    f"await asyncio.to_thread(work).",
                )
        return function(*args, **kwargs)

    return call


for _name in __all__:
    _found = globals()[_name]
    if isfunction(_found):
        _places = {one: place for place, one in enumerate(signature(_found).parameters) if one in _STORES}
        if _places:
            globals()[_name] = _of_stores(_found, _places)
