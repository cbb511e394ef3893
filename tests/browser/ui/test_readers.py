"""Every page for those who see little, use the keyboard, or have no script: axe-core finds nothing serious, filled and empty."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser.ui.watching import Watched, crawled

Looking = Callable[..., Watched]
SERIOUS = ("serious", "critical")


def accused(watched: Watched, axe: Axe) -> Iterator[str]:
    """What axe-core finds on the page, in both themes."""
    for theme in ("light", "dark"):
        watched.page.emulate_media(color_scheme=theme)
        found: list[dict[str, Any]] = axe.run(watched.page).response["violations"]
        for one in found:
            if one["impact"] in SERIOUS:
                yield f"{theme}: {one['id']}: {one['nodes'][0]['html'][:200]}"


@pytest.mark.parametrize("state", ["filled", "empty"])
def test_nothing_serious_on_any_page(state: str, backend: str, looking: Looking, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("filled" if state == "filled" else f"{backend}_url")
    watched, axe = looking(url, allow_changes=True), Axe()
    found = [f"{path}: {one}" for path, _ in crawled(watched, of_a_kind=1) for one in accused(watched, axe)]
    assert found == []


def test_without_a_script_every_page_says_the_same(filled: str, looking: Looking) -> None:
    watched = looking(filled, java_script_enabled=False)
    pages = [path for path, status in plain_crawl(watched) if status == 200]
    assert len(pages) > 20
    assert watched.wrong == []


def plain_crawl(watched: Watched) -> Iterator[tuple[str, int]]:
    """The pages behind each link of the menu, and one page behind the first link of each."""
    watched.page.goto(watched.address + "/")
    menu = watched.page.locator("nav a").evaluate_all("all => all.map(a => a.getAttribute('href'))")
    for path in menu:
        answer = watched.page.goto(watched.address + path)
        assert answer is not None
        yield path, answer.status
        rows = watched.page.locator("main td a").all()
        if rows:
            inner = rows[0].get_attribute("href") or "/"
            answer = watched.page.goto(watched.address + inner)
            assert answer is not None
            assert watched.page.locator("h1").count() == 1
            yield inner, answer.status
