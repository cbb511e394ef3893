"""Faults of the pages: what would let others in, run what is stored, or leave a store as it should not be."""

from tests.planted_faults.fault import Fault

PROTECTION = ("tests/ui/test_protection.py",)

FAULTS = (
    Fault(
        "ui: a form of another site whose origin is hidden is taken",
        "missing check",
        "ui",
        'foreign = site != "same-origin" if origin == "null" or site is not None else False',
        'foreign = site != "same-origin" if site is not None and origin != "null" else False',
        PROTECTION,
    ),
    Fault(
        "ui: a page answers to any name of its host",
        "missing check",
        "ui",
        "if self._hosts is not None and urlsplit(",
        "if self._hosts is None and urlsplit(",
        PROTECTION,
    ),
    Fault(
        "ui: a form is taken where the pages only look",
        "missing check",
        "ui",
        "if not self.site.allow_changes:",
        "if self.site.title is None:",
        PROTECTION,
    ),
    Fault(
        "ui: a file outside of the folder can be named",
        "missing check",
        "ui",
        "if not any(one == path for one in self._files(self._folder, 0)):",
        "if not path.is_file():",
        ("tests/ui/test_stores.py",),
    ),
    Fault(
        "ui: a viewer who does not read is kept",
        "missing limit",
        "ui",
        "async with asyncio.timeout(PATIENCE):",
        "async with asyncio.timeout(None):",
        ("tests/ui/test_viewers.py",),
    ),
    Fault(
        "ui: a page reads for as long as it likes",
        "missing limit",
        "ui",
        "work.interrupt()",
        "work.is_open",
        ("tests/ui/test_reading.py",),
    ),
)
