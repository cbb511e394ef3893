"""On Postgres the log of events is switched by who may make triggers: whoever may not is told which right is lacking."""

from collections.abc import Callable, Iterator

import psycopg
import pytest
from click.testing import CliRunner

from persist import Store
from persist.cli import main
from persist.errors import NotPermitted
from tests.contract.chat.scenes import create, say
from tests.contract.events.scenes import kinds
from tests.distributed_server import takes_triggers

NewRole = Callable[[str], str]


class Role:
    """A role that may write rows, as an application's has to, and what its owner grants it besides."""

    def __init__(self, owner: psycopg.Connection, url: str) -> None:
        self.url = url
        self._owner = owner
        self.name = psycopg.conninfo.conninfo_to_dict(url)["user"]
        self.grant("SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA persist")
        self.grant("USAGE ON ALL SEQUENCES IN SCHEMA persist")

    def grant(self, rights: str) -> None:
        self._owner.execute(f'GRANT {rights} TO "{self.name}"')

    def refused(self, *, on: bool) -> str:
        with Store.open(self.url) as store:
            with pytest.raises(NotPermitted) as refused:
                store.switch_events(on)
            assert store.logs_events is not on
        return str(refused.value)


@pytest.fixture
def role(own_postgres_url: str, new_role: NewRole) -> Iterator[Role]:
    with psycopg.connect(own_postgres_url, autocommit=True) as owner:
        yield Role(owner, new_role(own_postgres_url))


def test_each_right_that_lacks_is_named(role: Role) -> None:
    said = role.refused(on=True)
    assert f"The role {role.name!r} cannot switch the log of events on: it lacks CREATE in the schema 'persist'" in said
    assert "TRIGGER on tables agent_" in said
    assert "Run `persist events on` as the role that owns the tables" in said
    role.grant("CREATE ON SCHEMA persist")
    assert "CREATE" not in role.refused(on=True)
    role.grant("TRIGGER ON ALL TABLES IN SCHEMA persist")
    with Store.open(role.url) as store:
        session = create(store)
        assert store.switch_events(True)
        say(store, session, "hi")
        assert kinds(store, session) == ["snapshot", "message.appended"]
        assert store.switch_events(False)


def test_a_log_that_somebody_else_guards(role: Role, own_postgres_url: str) -> None:
    with Store.open(own_postgres_url) as owner:
        owner.switch_events(True)
        # a cluster has no guards whose functions somebody owns: there it takes what switching on takes
        lacking = "ownership of the function" if takes_triggers(own_postgres_url) else "CREATE in the schema"
        assert f"cannot switch the log of events off: it lacks {lacking}" in role.refused(on=False)
        with Store.open(role.url, events=True) as store:  # it is on, and nothing has to be done
            assert not store.switch_events(True)
            create(store)
        owner.switch_events(False)
        with Store.open(role.url) as store:
            assert not store.switch_events(False)


def test_whoever_may_only_read_is_told_so(own_postgres_url: str, new_role: NewRole) -> None:
    with Store.open(new_role(own_postgres_url)) as store, pytest.raises(NotPermitted, match="UPDATE on tables"):
        store.switch_events(True)


def test_the_command_says_it_in_one_line(role: Role) -> None:
    result = CliRunner().invoke(main, ["events", "on", "--url", role.url])
    assert (result.exit_code, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1
    assert "it lacks CREATE in the schema 'persist'" in result.stderr
