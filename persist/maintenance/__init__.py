"""Maintenance functions over an open store; the command line calls them too."""

from persist.maintenance.backups import BackupReport, backup
from persist.maintenance.copying import CopyReport, copy
from persist.maintenance.diagram import erd
from persist.maintenance.doctor_checks import doctor
from persist.maintenance.erase_reports import EraseReport, verify_report
from persist.maintenance.erasing import erase
from persist.maintenance.exporting import ExportReport, export
from persist.maintenance.findings import Finding
from persist.maintenance.importing import ImportReport, import_
from persist.maintenance.maintaining import MaintenanceReport, MaintenanceStep, maintain
from persist.maintenance.operations import checkpoint, vacuum
from persist.maintenance.overview import stats
from persist.maintenance.pruning import PruneReport, prunable, prune
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
