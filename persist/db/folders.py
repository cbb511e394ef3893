"""Folders of files that must survive a power cut."""

import os
from contextlib import suppress
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """So that the new name survives a power cut too; where folders cannot be opened it is as durable as the system makes it."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
