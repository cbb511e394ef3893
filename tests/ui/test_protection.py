"""Who may look and who may change something: the headers of every answer, hosts, tokens, origins, and the host's judgement."""

from collections.abc import Callable
from typing import Any

import pytest

from persist import Store
from persist.ui import create_app
from persist.ui.protection import Guarded
from tests.cases import each
from tests.ui.test_runs import made
from tests.ui.visitor import ORIGIN, Visitor

PAGES = ("/", "/runs", "/runs/none", "/nowhere", "/static/persist.css", "/healthz", "/runs?format=json", "/runs?status=wrong")


@pytest.mark.parametrize("path", PAGES)
def test_every_answer_forbids_what_is_not_of_this_origin(visitor: Visitor, path: str) -> None:
    headers = visitor.get(path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")


def test_pages_that_only_look_have_no_form_that_is_sent(state: Store, visitor: Visitor) -> None:
    id = made(state)
    assert 'method="post"' not in visitor.get(f"/runs/{id}").text
    assert "set-cookie" not in visitor.get(f"/runs/{id}").headers
    visitor._client.cookies.set("persist_form", "x" * 43)  # of a page that had forms
    refused = visitor.post(f"/runs/{id}/cancel", back="/")
    assert (refused.status, state.workflows.runs.get(id).status) == (403, "running")


def test_a_page_asked_by_another_method_is_not_there(changer: Visitor, state: Store) -> None:
    id = made(state)
    changer.get("/runs")
    assert changer.get(f"/runs/{id}/cancel").status in (404, 405)
    assert state.workflows.runs.get(id).status == "running"


FOREIGN: dict[str, dict[str, str]] = {
    "another-site": {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
    "another-port": {"Origin": "http://127.0.0.1:9999", "Sec-Fetch-Site": "same-site"},
    "another-scheme": {"Origin": "https://127.0.0.1:8790"},
    "null-of-a-sandbox": {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
    "null-without-a-word": {"Origin": "null", "Sec-Fetch-Site": ""},
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_form_of_another_origin_changes_nothing(state: Store, changer: Visitor, kind: str) -> None:
    id = made(state)
    changer.get(f"/runs/{id}")
    refused = changer.post(f"/runs/{id}/cancel", FOREIGN[kind], back="/")
    assert (refused.status, state.workflows.runs.get(id).status) == (403, "running")


def test_null_of_the_same_origin_is_a_form_under_no_referrer(state: Store, changer: Visitor) -> None:
    id = made(state)
    changer.get(f"/runs/{id}")
    assert changer.post(f"/runs/{id}/cancel", {"Origin": "null", "Sec-Fetch-Site": "same-origin"}, back="/").status == 303


def test_a_form_needs_the_token_of_a_page(state: Store, changer: Visitor) -> None:
    id = made(state)
    assert changer.post(f"/runs/{id}/cancel", back="/").status == 403  # no page was loaded before
    changer.get(f"/runs/{id}")
    assert changer.post(f"/runs/{id}/cancel", signed=False, token="x" * 43, back="/").status == 403
    assert changer.post(f"/runs/{id}/cancel", signed=False, token="é\x00", back="/").status == 403
    assert state.workflows.runs.get(id).status == "running"
    cookie = changer.get("/runs").headers.get("set-cookie")
    assert cookie is None  # the first page's is kept
    assert changer.post(f"/runs/{id}/cancel", back="/").status == 303


def test_the_token_is_in_a_cookie_that_no_script_and_no_other_site_has(changer: Visitor) -> None:
    cookie = changer.get("/runs").headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}


@each("back", ["https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)", "", "/ü"])
def test_a_form_leads_back_to_a_page_of_the_application_alone(state: Store, changer: Visitor, back: str) -> None:
    id = made(state)
    changer.get(f"/runs/{id}")
    assert changer.post(f"/runs/{id}/cancel", back=back).headers["location"] == "/"


def test_a_form_that_is_too_large_or_no_text_is_refused(state: Store, changer: Visitor) -> None:
    id = made(state)
    changer.get(f"/runs/{id}")
    assert changer.post(f"/runs/{id}/cancel", reason="x" * (1 << 20)).status == 400
    assert changer.post(f"/runs/{id}/cancel", {"Content-Type": "application/json"}, reason="x").status == 303


def test_the_host_says_who_acts(state: Store, visit: Callable[..., Visitor]) -> None:
    state.switch_events(True)
    id = made(state)
    visitor = visit(allow_changes=True, authorize=lambda request: request.headers.get("x-user"))
    assert visitor.get("/runs").status == 403
    assert visitor.get("/runs", {"X-User": "ada"}).status == 200
    assert visitor.post(f"/runs/{id}/cancel", back="/").status == 403
    assert visitor.post(f"/runs/{id}/cancel", {"X-User": "ada"}, back="/").status == 303
    with state.read() as tx:
        assert [event.actor for event in tx.events.read(f"workflow:{id}", after=1)] == ["ada"]


def test_the_host_may_ask_somebody_before_it_judges(visit: Callable[..., Visitor]) -> None:
    async def authorize(request: Any) -> str | None:
        return None if "x-user" not in request.headers else "ada"

    visitor = visit(authorize=authorize)
    assert [visitor.get("/runs").status, visitor.get("/runs", {"X-User": "ada"}).status] == [403, 200]


# -- served by itself


@pytest.fixture
def served(state: Store) -> Callable[..., Visitor]:
    def make(hosts: frozenset[str] | None = frozenset({"127.0.0.1", "localhost"}), token: str | None = None) -> Visitor:
        return Visitor(Guarded(create_app(state), hosts, token))

    return make


@each("host", ["evil.example", "127.0.0.1.evil.example:8790", "127.0.0.1:8790@evil.example", "", "[::2]:8790"])
def test_another_name_of_the_host_is_refused(served: Callable[..., Visitor], host: str) -> None:
    visitor = served()
    assert visitor.get("/runs", {"Host": host}).status == 421
    assert visitor.get("/runs", {"Host": "localhost:1"}).status == 200
    visitor.close()


def test_a_token_is_asked_for_once(served: Callable[..., Visitor]) -> None:
    visitor = served(None, "sesame-open-1")
    assert visitor.get("/runs").status == 401
    assert visitor.get("/runs", token="sesame-open-2").status == 401
    assert visitor.get("/runs", {"Cookie": "persist_token=sesame-open-2"}).status == 401
    known = visitor.get("/runs", token="sesame-open-1", status="failed")
    assert known.status == 303
    assert known.headers["location"] == f"{ORIGIN}/runs?status=failed"
    assert visitor.get("/runs").status == 200
    visitor.close()


def test_mounted_below_a_prefix_every_address_begins_with_it(state: Store, visit: Callable[..., Visitor]) -> None:
    id = made(state)
    visitor = visit(mounted="/inner/state", allow_changes=True)
    page = visitor.get(f"/runs/{id}")
    addresses = {part.split('"')[0] for part in page.text.split('href="')[1:]} | {
        part.split('"')[0] for part in page.text.split('action="')[1:]
    }
    assert {one for one in addresses if not one.startswith(("/inner/state/", "#"))} == set()
    assert visitor.post(f"/runs/{id}/cancel", back=f"/runs/{id}").headers["location"] == f"/inner/state/runs/{id}"


def test_files_are_compressed_and_asked_for_again_and_pages_are_sent_as_they_are(visitor: Visitor) -> None:
    sheet = visitor.get("/static/persist.css", {"Accept-Encoding": "gzip"})
    assert (sheet.headers["content-encoding"], sheet.headers["cache-control"]) == ("gzip", "no-cache")
    assert visitor.get("/static/persist.css", {"If-None-Match": sheet.headers["etag"]}).status == 304
    page = visitor.get("/runs", {"Accept-Encoding": "gzip"}, status="failed")
    assert ("content-encoding" in page.headers, page.headers["cache-control"]) == (False, "no-store")
