"""Which stores `persist ui` shows: a file, a folder of files, the tenants of a server; and how each fails."""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from persist import Store
from persist.errors import NotFound
from persist.tenants.tenants import Tenants
from persist.ui import stores
from persist.ui.stores import Folder, ManyStores, OneStore, TenantsOfServer
from persist.ui.views import Site
from tests.markdown import ROOT
from tests.schema.places import VERSION_TABLE, Place
from tests.schema.test_opening import at_version
from tests.ui.visitor import Visitor

Many = Callable[..., Visitor]


def made(path: Path, workflow: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with Store.open(path) as store:
        store.workflows.runs.create(workflow, trigger_id="t", current_phase="plan")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made(tmp_path / "runs" / "one" / "state.db", "review")
    made(tmp_path / "instances" / "a b #?.db", "answer")
    (tmp_path / "notes.db").write_text("no database")
    (tmp_path / "empty.db").touch()
    return tmp_path


@pytest.fixture
def looking(folder: Path) -> Iterator[Many]:
    with ExitStack() as stack:

        def make(at: Path = folder, **site: object) -> Visitor:
            many = ManyStores(Folder(at), Site("all", **site))  # type: ignore[arg-type]  # fields of a site
            visitor = Visitor(many)
            stack.callback(visitor.close)
            stack.callback(many.close)
            return visitor

        yield make


def test_a_folder_lists_its_stores_and_each_has_its_pages(looking: Many) -> None:
    visitor = looking()
    assert visitor.json("/") == {"items": ["instances/a b #?.db", "runs/one/state.db"], "cursor": None}
    page = visitor.get("/").text
    addresses = [part.split('"')[0] for part in page.split('href="')[1:] if part.startswith("/stores/")]
    assert len(addresses) == 2
    assert ["answer" in visitor.get(f"{address}runs").main for address in addresses] == [True, False]
    assert ["review" in visitor.get(f"{address}runs").main for address in addresses] == [False, True]


def test_no_name_leads_out_of_the_folder(looking: Many, folder: Path) -> None:
    visitor = looking(folder / "runs")
    for name in ("..%252Finstances%252Fa b %23%3F.db", "%252Fetc%252Fpasswd", "notes.db", "one", "none", "..%2F..%2Fx"):
        assert visitor.get(f"/stores/{name}/runs").status == 404, name


def test_links_are_not_followed_out_of_the_folder(looking: Many, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "other.db"
    made(elsewhere, "secret")
    (folder / "link.db").symlink_to(elsewhere)
    visitor = looking()
    assert "link.db" not in visitor.json("/")["items"]
    assert visitor.get("/stores/link.db/runs").status == 404


def test_a_file_of_another_program_says_so_and_the_others_are_there(looking: Many, folder: Path) -> None:
    with closing(sqlite3.connect(folder / "other.db")) as raw:
        raw.execute("CREATE TABLE notes (text)")
    visitor = looking()
    answer = visitor.get("/stores/other.db/runs")
    assert answer.status == 503
    assert "persist" in answer.main
    assert visitor.get("/stores/runs%252Fone%252Fstate.db/runs").status == 200


def test_stores_that_nobody_looks_at_are_closed(looking: Many, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_OPEN", 1)
    visitor = looking()
    for _ in range(3):
        assert visitor.get("/stores/runs%252Fone%252Fstate.db/runs").status == 200
        assert visitor.get("/stores/instances%252Fa%20b%20%23%3F.db/runs").status == 200


OLD = ROOT / "tests" / "schema" / "databases" / "0003.db"


def test_an_older_schema_is_a_page_that_names_the_command(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    shutil.copy(OLD, file)
    before = file.read_bytes()
    one = OneStore(lambda: Store.open(file, read_only=True, migrate=False), Site())
    one.check()
    visitor = Visitor(one)
    answer = visitor.get("/")
    assert (answer.status, "persist upgrade" in answer.main) == (503, True)
    assert visitor.get("/static/persist.css").status == 200
    assert visitor.json_error("/runs")["type"] == "SchemaOutdated"
    assert file.read_bytes() == before
    visitor.close()


def test_a_newer_schema_is_one_too_and_shows_again_when_it_is_known(tmp_path: Path) -> None:
    with Store.open(tmp_path / "state.db"):
        pass
    place = Place(f"sqlite:///{tmp_path}/state.db")
    (known,) = place.ask(f"SELECT version_num FROM {VERSION_TABLE}")[0]
    at_version(place, "9999")
    one = OneStore(lambda: Store.open(tmp_path / "state.db", migrate=False), Site())
    one.check()
    visitor = Visitor(one)
    assert (visitor.get("/runs").status, visitor.json_error("/runs")["type"]) == (503, "SchemaTooNew")
    at_version(place, known)
    assert visitor.get("/runs").status == 200
    visitor.close()
    one.close()


def test_a_missing_file_is_an_error_before_anything_is_served(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        OneStore(lambda: Store.open(tmp_path / "none.db", read_only=True), Site()).check()


def test_the_tenants_of_a_server_are_listed_and_shown(empty_postgres_url: str) -> None:
    with Tenants(empty_postgres_url) as tenants:
        for name in ("acme", "beta"):
            tenants.create(name)
            with tenants.open(name) as store:
                store.workflows.runs.create(f"of_{name}", trigger_id="t", current_phase="plan")
    many = ManyStores(TenantsOfServer(empty_postgres_url), Site("tenants"))
    visitor = Visitor(many)
    assert visitor.json("/")["items"] == ["acme", "beta"]
    assert "of_beta" in visitor.get("/stores/beta/runs").main
    assert visitor.get("/stores/none/runs").status in (404, 503)
    visitor.close()
    many.close()


def test_a_store_is_opened_once_for_many_visitors(folder: Path) -> None:
    opened = []

    def open_() -> Store:
        opened.append(Store.open(folder / "runs" / "one" / "state.db", read_only=True))
        return opened[-1]

    one = OneStore(open_, Site())

    async def visit() -> None:
        await asyncio.gather(*(one._opened() for _ in range(5)))

    asyncio.run(visit())
    one.close()
    assert len(opened) == 1
