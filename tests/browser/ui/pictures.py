"""Makes the pictures of the pages in README and docs anew, from a store that examples/filled fills: `make ui-pictures`."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

from examples.filled.filling import fill
from persist import Store
from tests.browser.scenes import open_chromium
from tests.browser.ui.watching import served

WIDTH, HEIGHT = 1280, 860
PICTURES = {"ui-overview": "/", "ui-run": "/runs/{finished_run}", "ui-chat": "/chat/{chat}", "ui-usage": "/usage"}


def main(folder: Path) -> None:
    """Write a picture of each page into the folder."""
    with TemporaryDirectory() as temporary:
        url = f"sqlite:///{temporary}/state.db"
        with Store.open(url) as store:
            ids = fill(store)
        with served(url) as address, sync_playwright() as playwright, open_chromium(playwright) as browser:
            for name, path in PICTURES.items():
                page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
                page.goto(address + path.format(**ids))
                page.screenshot(path=folder / f"{name}.png")
                page.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
