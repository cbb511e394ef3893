"""Whatever text a store holds: nothing of it runs, nothing is fetched, and every page stays whole."""

from collections.abc import Callable

import pytest

from tests.browser.ui.payloads import PAYLOADS, spoil, text_columns
from tests.browser.ui.watching import Watched, crawled

Looking = Callable[..., Watched]


def test_no_payload_runs_fetches_or_breaks_a_page(filled: str, looking: Looking) -> None:
    took = spoil(filled)
    assert len(PAYLOADS) >= 40
    assert len(took) > len(list(text_columns())) * 0.6, "the scene holds too little that could be spoilt"
    watched = looking(filled, allow_changes=True)
    visited = []
    for path, status in crawled(watched):
        visited.append(path)
        assert status in (200, 404), f"{path}: {status}"
        assert watched.page.locator("h1").count() == 1, path
        assert watched.page.locator("body > footer").count() == 1, path
        assert "1337" not in watched.page.inner_text("body"), path
        assert watched.wrong == [], path
    assert len(visited) > 25, visited


@pytest.mark.parametrize("width", [360])
def test_no_page_is_wider_than_a_phone(filled: str, looking: Looking, width: int) -> None:
    watched = looking(filled, viewport={"width": width, "height": 740})
    wide = []
    for path, _ in crawled(watched, of_a_kind=1):
        if watched.page.evaluate("() => document.documentElement.scrollWidth > window.innerWidth"):
            wide.append(path)
    assert wide == []
    assert watched.wrong == []
