"""Settings of a role or database: persist works by its own, directly, behind a pooler and over a host's engine."""

import logging
from contextlib import closing
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, make_url, text

from persist import Store
from persist.maintenance import doctor
from persist.store.transaction import work_of
from tests.contract.chat.scenes import create

_EXACT = 0.1 + 0.2


@pytest.fixture
def odd_url(postgres_url: str) -> str:
    """A database whose sessions begin with other settings than a new server's."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for setting in ("default_transaction_isolation = serializable", "extra_float_digits = 0"):
            connection.execute(f'ALTER DATABASE "{make_url(postgres_url).database}" SET {setting}'.encode())
    return postgres_url


def seen(tx: Any) -> tuple[Any, ...]:
    """The level of the transaction, and a number with fractions, by a statement of persist's pipeline."""
    driver = work_of(tx).transaction.driver
    found = driver.execute("SELECT current_setting('transaction_isolation'), CAST(%s AS float8)", (str(_EXACT),))
    return tuple(found.fetchone())


@pytest.mark.parametrize("pooler", [None, "transaction"])
def test_a_store_works_by_its_own_settings(odd_url: str, pooler: Any) -> None:
    with Store.open(odd_url, pooler=pooler) as store:
        with store.begin() as tx:
            assert seen(tx) == ("read committed", _EXACT)
        with store.read() as tx:
            assert seen(tx) == ("repeatable read", _EXACT)
        session = create(store)
        with store.begin() as one:
            one.chat.sessions.get(session)
            with psycopg.connect(odd_url) as other:
                other.execute("UPDATE persist.chat_sessions SET agent = 'another'")
            one.chat.sessions.delete(session)  # serializable would refuse it
        with closing(store.runtime.connections.writer.raw_connection()) as pooled:
            cursor = pooled.cursor()
            cursor.execute("SELECT current_setting('extra_float_digits')")
            assert cursor.fetchone() == ("1" if pooler is None else "0",)  # a pooler's next client does not find it


def test_a_host_and_the_doctor_are_told_which_settings_matter(odd_url: str, caplog: pytest.LogCaptureFixture) -> None:
    engine = create_engine(make_url(odd_url).set(drivername="postgresql+psycopg"))
    with caplog.at_level(logging.WARNING, "persist"), Store.from_engine(engine) as store:
        assert "extra_float_digits" in caplog.text
        with store.begin() as tx:
            level = work_of(tx).connection.execute(text("SHOW transaction_isolation")).scalar()
        assert level == "read committed"
    engine.dispose()
    with Store.open(odd_url) as store:
        told = {found.subject for found in doctor(store) if found.code == "setting"}
    assert told == {"default_transaction_isolation", "extra_float_digits"}


@pytest.mark.parametrize("pooler", [None, "transaction"])
def test_costs_come_back_exactly_whatever_the_role_has_set(postgres_url: str, pooler: Any) -> None:
    """Each of these needs all of its digits: fifteen, as `extra_float_digits = 0` prints them, are another number."""
    costs = [_EXACT, 1 / 3, 2 / 3 * 1e-6, 1e9 / 7, 5e-324, 7e299 / 9]
    assert all(float(f"{cost:.15g}") != cost for cost in costs[:4])
    url = make_url(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        (role,) = connection.execute("SELECT quote_ident(current_user)").fetchone() or ()
        setting = f'ALTER ROLE {role} IN DATABASE "{url.database}" SET extra_float_digits = 0'
        connection.execute(setting.encode())
    with Store.open(postgres_url, pooler=pooler) as store:
        with store.begin() as tx:
            made = [tx.workflows.executions.start(trigger_type="t", trigger_id="t", skill="build") for _ in costs]
            for execution, cost in zip(made, costs, strict=True):
                tx.workflows.executions.finish(execution.id, success=True, cost_usd=cost)
        for execution, cost in zip(made, costs, strict=True):
            assert store.workflows.executions.get(execution.id).cost_usd == cost
        listed = {found.id: found.cost_usd for found in store.workflows.executions.list().items}
        assert listed == {execution.id: cost for execution, cost in zip(made, costs, strict=True)}
