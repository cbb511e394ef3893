"""Tenants: opened, created, dropped and listed; which stores stay open; that none sees what another one holds."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from persist import Closed, Conflict, InvalidValue, NotFound, StoreInUse, UnknownTenant
from persist.errors import StoreError
from persist.tenants.directory import Directory
from persist.tenants.placing import UpgradeStatus
from persist.testing import FrozenClock
from tests.async_portal import SyncFace
from tests.contract.chat.scenes import create
from tests.contract.faces import every_way


def ids(store: Any) -> list[str]:
    return [session.id for session in store.chat.sessions.list().items]


@every_way
def test_each_tenant_sees_its_own_rows_alone(tenants: Any) -> None:
    made: dict[str, set[str]] = {}
    for name in ("acme", "beta", "acme", "beta"):
        with tenants.open(name) as store:
            session = create(store)
            made.setdefault(name, set()).add(session)
            with store.record(session) as recorder:
                recorder.feed_many([{"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": name}])
    for name, sessions in made.items():
        with tenants.open(name) as store:
            assert set(ids(store)) == sessions
            for session in sessions:
                ((message,),) = (store.chat.messages.list(session),)
                assert message["parts"][0]["text"] == name


def test_transactions_of_several_tenants_at_the_same_time(tenants: Any) -> None:
    with tenants.open("acme") as acme, tenants.open("beta") as beta, acme.begin() as one, beta.begin() as two:
        first = one.chat.sessions.create(agent="a", model={})
        second = two.chat.sessions.create(agent="b", model={})
        assert acme.chat.sessions.list().items == []
        assert two.chat.sessions.get(second.id).agent == "b"
        with pytest.raises(NotFound):
            two.chat.sessions.get(first.id)


@every_way
def test_an_unknown_tenant_is_an_error_and_is_not_created(tenants: Any) -> None:
    with pytest.raises(UnknownTenant) as unknown, tenants.open("nobody"):
        pass
    assert (unknown.value.kind, unknown.value.id) == ("tenant", "nobody")
    assert isinstance(unknown.value, NotFound)
    assert not tenants.exists("nobody")
    with pytest.raises(UnknownTenant):
        tenants.drop("nobody", confirm="nobody")


@every_way
def test_a_store_that_was_given_back_is_closed_and_the_tenant_is_not(tenants: Any) -> None:
    with tenants.open("acme") as other:
        with tenants.open("acme") as store:
            chat = store.chat
            session = create(store)
        store.close()
        for use in (store.begin, store.read):
            with pytest.raises(Closed), use():
                pass
        with pytest.raises(Closed):
            chat.sessions.list()
        with pytest.raises(Closed):
            store.chat.sessions.list()
        assert ids(other) == [session]
    assert ids_of(tenants) == [session]


def ids_of(tenants: Any) -> list[str]:
    with tenants.open("acme") as store:
        return ids(store)


@every_way
def test_stores_used_longest_ago_are_closed_but_none_that_is_in_use(open_tenants: Callable[..., Any]) -> None:
    tenants = open_tenants(max_open=1)
    with tenants.open("acme") as acme:
        session = create(acme)
        with tenants.open("beta"):
            assert "2 open" in repr(tenants)
        assert ids(acme) == [session]  # in use all the time
        assert "1 open" in repr(tenants)
    with tenants.open("beta"):
        assert "1 open" in repr(tenants)
    with tenants.open("acme") as acme:
        assert ids(acme) == [session]


def test_a_recorder_and_a_repository_keep_their_tenant_open(open_tenants: Callable[..., Any], face: str) -> None:
    tenants = open_tenants(max_open=1)
    with tenants.open("acme") as store:
        session = create(store)
    held = tenants.open("acme").__enter__()
    recorder, chat = held.record(session), held.chat
    del held
    gc.collect()
    for _ in range(3):
        with tenants.open("beta"):
            pass
    with recorder:
        recorder.feed({"type": "text-start", "id": "t"})
    assert len(chat.messages.list(session)) == 1


@every_way
def test_dropping_asks_for_the_name_twice_and_refuses_a_store_in_use(tenants: Any) -> None:
    with tenants.open("acme") as store:
        create(store)
        with pytest.raises(InvalidValue, match="repeat its name"):
            tenants.drop("acme", confirm="yes")
        with pytest.raises(StoreInUse):
            tenants.drop("acme", confirm="acme")
    tenants.drop("acme", confirm="acme")
    assert not tenants.exists("acme")
    assert [tenant.name for tenant in tenants.list().items] == ["beta"]
    with pytest.raises(UnknownTenant), tenants.open("acme"):
        pass


@every_way
def test_nobody_gets_a_store_of_a_tenant_that_is_being_dropped(tenants: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped = Directory.drop
    refused: list[BaseException] = []

    def meanwhile(directory: Directory, name: str, confirm: str, server: str | None) -> None:
        stores = (tenants._target if isinstance(tenants, SyncFace) else tenants)._stores
        with pytest.raises(Conflict, match="is being dropped") as opened:
            stores.take(name)
        with pytest.raises(Conflict, match="is being dropped") as dropped_twice, stores.leaving(name):
            pass
        refused.extend([opened.value, dropped_twice.value])
        dropped(directory, name, confirm, server)

    with tenants.open("acme") as store:
        create(store)
    monkeypatch.setattr(Directory, "drop", meanwhile)
    tenants.drop("acme", confirm="acme")
    assert len(refused) == 2
    with pytest.raises(UnknownTenant), tenants.open("acme"):
        pass


@every_way
def test_each_tenant_has_a_folder_for_bodies_of_its_own(open_tenants: Any, tmp_path: Path, clock: FrozenClock) -> None:
    tenants = open_tenants(blobs=tmp_path / "bodies")
    digests = {}
    for name in ("acme", "beta"):
        with tenants.open(name) as store:
            digests[name] = store.blobs.put(name.encode()).sha256
    with tenants.open("acme") as store:
        assert store.blobs.delete(digests["acme"])
    with tenants.open("beta") as store:
        assert store.blobs.read(digests["beta"]) == b"beta"
    assert {path.name for path in (tmp_path / "bodies").rglob("*") if len(path.name) == 64} == {digests["beta"]}


@every_way
def test_a_dropped_tenant_is_not_registered_where_its_bodies_are(open_tenants: Any, tmp_path: Path) -> None:
    tenants = open_tenants(blobs=tmp_path / "bodies")
    for name in ("acme", "beta", "acme"):
        if not tenants.exists(name):
            tenants.create(name)
        with tenants.open(name) as store:
            store.blobs.put(b"a")
        if name == "acme":
            tenants.drop("acme", confirm="acme")
    assert {path.parent.parent.name for path in (tmp_path / "bodies").glob("*/databases/*")} == {"beta"}
    assert len([*(tmp_path / "bodies").glob("acme/*/*/*")]) == 1


@every_way
def test_a_tenant_is_created_once_and_new_after_it_was_dropped(tenants: Any) -> None:
    with tenants.open("beta") as store:
        create(store)
    with pytest.raises(Conflict, match="exists already"):
        tenants.create("beta")
    tenants.drop("beta", confirm="beta")
    assert tenants.create("beta").name == "beta"
    with tenants.open("beta") as store:
        assert ids(store) == []


@pytest.mark.parametrize("backend", ["postgres"])
def test_a_store_that_is_idle_elsewhere_is_one_of_the_tenant_that_is_created_anew(tenants: Any, open_tenants: Any) -> None:
    """A file that somebody has open is not dropped at all."""
    with open_tenants().open("beta") as idle:
        create(idle)
        tenants.drop("beta", confirm="beta")
        with pytest.raises(StoreError, match="does not exist"):
            create(idle)
        tenants.create("beta")
        assert ids(idle) == []
        create(idle)
        with tenants.open("beta") as store:
            assert ids(store) == ids(idle) != []


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_file_that_is_open_elsewhere_is_not_dropped(tenants: Any, open_tenants: Any) -> None:
    with open_tenants().open("beta") as idle:
        create(idle)
        with pytest.raises(StoreInUse):
            tenants.drop("beta", confirm="beta")
        assert len(ids(idle)) == 1


def test_tenants_are_listed_by_name_in_pages(tenants: Any) -> None:
    first = tenants.list(limit=1)
    assert [tenant.name for tenant in first.items] == ["acme"]
    second = tenants.list(limit=1, after=first.cursor)
    assert ([tenant.name for tenant in second.items], second.cursor) == (["beta"], None)
    with pytest.raises(InvalidValue, match="cursor"):
        tenants.list(after="nonsense")


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_damaged_file_hides_no_other_tenant(tenants: Any, server_url: str) -> None:
    Path(server_url.removeprefix("sqlite:///"), "acme.db").write_bytes(b"garbage" * 1000)
    assert [tenant.name for tenant in tenants.list().items] == ["acme", "beta"]
    outcomes = {outcome.tenant: outcome for outcome in tenants.upgrade_all().outcomes}
    assert (outcomes["acme"].status, outcomes["beta"].status) == (UpgradeStatus.FAILED, UpgradeStatus.CURRENT)
    assert "not a database" in str(outcomes["acme"].error)
    with tenants.open("beta") as store:
        assert ids(store) == []


def test_every_verb_refuses_a_name_before_it_looks(tenants: Any) -> None:
    for verb in (tenants.create, tenants.exists):
        with pytest.raises(InvalidValue, match="tenant"):
            verb('x"; DROP SCHEMA acme; --')
    with pytest.raises(InvalidValue, match="tenant"), tenants.open("../acme"):
        pass
    with pytest.raises(InvalidValue, match="tenant"):
        tenants.drop("Acme", confirm="Acme")


@every_way
def test_a_copy_has_the_same_rows_and_must_be_empty(tenants: Any, empty_server: str, open_tenants: Callable[..., Any]) -> None:
    with tenants.open("acme") as store:
        session = create(store)
    report = tenants.copy("acme", empty_server, new_name="acme_2")
    assert report.tables["chat_sessions"] == 1
    others = open_tenants(empty_server)
    with others.open("acme_2") as store:
        assert ids(store) == [session]
    with pytest.raises(Conflict):
        tenants.copy("acme", empty_server, new_name="acme_2")
    with pytest.raises(UnknownTenant):
        tenants.copy("nobody", empty_server)


def test_a_rule_says_on_which_server_a_tenant_is(server_url: str, empty_server: str, open_tenants: Callable[..., Any]) -> None:
    tenants = open_tenants({"a": server_url, "b": empty_server}, rule=lambda name: "b" if name.startswith("new") else "a")
    with tenants.open("acme"):
        assert not tenants.exists("new_1")
    assert tenants.create("new_1").server == "b"
    assert [(tenant.name, tenant.server) for tenant in tenants.list().items] == [("acme", "a"), ("beta", "a"), ("new_1", "b")]
    assert [tenant.name for tenant in tenants.list(server="b").items] == ["new_1"]
    with pytest.raises(InvalidValue, match="belongs to"):
        tenants.create("new_2", server="a")
    wrong = open_tenants({"a": server_url}, rule=lambda name: "c")
    with pytest.raises(InvalidValue, match="none of the servers"), wrong.open("acme"):
        pass


@every_way
def test_a_map_says_on_which_server_a_tenant_is(
    server_url: str, empty_server: str, open_tenants: Callable[..., Any], new_database: Callable[[], str], tmp_path: Path
) -> None:
    tenants = open_tenants({"a": server_url, "b": empty_server}, map_url=f"sqlite:///{(tmp_path / 'map.db').as_posix()}")
    with pytest.raises(UnknownTenant), tenants.open("acme"):  # it is there, and in no map
        pass
    with pytest.raises(InvalidValue, match="on which server"):
        tenants.create("gamma")
    tenants.create("gamma", server="a")
    with pytest.raises(Conflict, match="exists already"):
        tenants.create("gamma", server="b")
    with tenants.open("gamma") as store:
        session = create(store)
    tenants.copy("gamma", "b")
    tenants.assign("gamma", "b")
    tenants.drop("gamma", confirm="gamma", server="a")
    with tenants.open("gamma") as store:
        assert ids(store) == [session]
    assert [(tenant.name, tenant.server) for tenant in tenants.list().items] == [("gamma", "b")]
    tenants.drop("gamma", confirm="gamma")
    assert tenants.list().items == []
    assert tenants.list(server="b").items == []


def test_what_a_tenants_is_made_with_is_checked(tmp_path: Path, open_tenants: Callable[..., Any]) -> None:
    for urls, options in (
        ({}, {}),
        ({"a": "sqlite://", "b": "sqlite://"}, {}),
        ("sqlite://", {}),
        ("mysql://host/db", {}),
        (f"sqlite:///{tmp_path.as_posix()}", {"max_open": 0}),
        (f"sqlite:///{tmp_path.as_posix()}", {"rule": str, "map_url": "sqlite:///map.db"}),
    ):
        with pytest.raises(InvalidValue):
            open_tenants(urls, **options)
    with pytest.raises(NotFound, match="folder"):
        open_tenants(f"sqlite:///{(tmp_path / 'missing').as_posix()}")


@every_way
def test_closing_closes_every_store_and_a_second_time_does_nothing(tenants: Any) -> None:
    with tenants.open("acme") as store:
        tenants.close()
        tenants.close()
        with pytest.raises(Closed):
            create(store)
    with pytest.raises(Closed), tenants.open("acme"):
        pass
