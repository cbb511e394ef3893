"""Fixtures: windows on the pages of a store, on both databases.

looking     opens a window on the pages of a database: looking(url, allow_changes=True)
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.browser.scenes import DEADLINE
from tests.browser.ui.watching import Watched, served


@pytest.fixture
def looking(browser: Browser) -> Iterator[Callable[..., Watched]]:
    with ExitStack() as stack:

        def make(url: str, *, allow_changes: bool = False, logs: Path | None = None, **options: Any) -> Watched:
            address = stack.enter_context(served(url, allow_changes=allow_changes, logs=logs))
            context = stack.enter_context(browser.new_context(**options))
            context.set_default_timeout(DEADLINE * 1000)
            return Watched(context, address)

        yield make
