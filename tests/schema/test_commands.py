"""`alembic` as a command from the repository, and upgrades of several processes at once."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

import persist
from persist import Store
from persist.schema.metadata import HEAD
from persist.schema.migrate import ini_text
from tests.distributed_server import takes_triggers
from tests.schema.places import ROOT, TABLES, Place
from tests.subprocesses import Worker


def environment(**more: str) -> dict[str, str]:
    """Ours, without the settings of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PERSIST_")}
    return {**kept, "PYTHONPATH": str(ROOT), **more}


def alembic(*arguments: str, **more: str) -> str:
    """The output of one command, which must succeed."""
    command = [sys.executable, "-W", "error", "-m", "alembic", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment(**more), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def forked(*arguments: str) -> tuple[int, str]:
    """What a command ends with and what it says, forked from a process that has loaded persist."""
    with Worker("alembic", *arguments, errors=True, cwd=ROOT) as worker:
        said, _ = worker.communicate(timeout=120)
    return worker.wait(), said


def at_once(command: str, url: str, count: int) -> None:
    """Several processes that do the same at the same time, and succeed."""
    with ExitStack() as stack:
        workers = [Worker("tests.schema.waiting_worker", command, url, stdin=True) for _ in range(count)]
        for worker in workers:
            stack.callback(worker.close)
        for worker in workers:
            assert worker.stdout.readline() == "ready\n"
        for worker in workers:
            worker.tell()
        assert [worker.wait(120) for worker in workers] == [0] * count


def test_three_upgrades_at_once(empty_database: Callable[[], Place], migrated: Place) -> None:
    place = empty_database()
    at_once("upgrade", place.url, 3)
    assert place.catalog() ^ migrated.catalog() == set()
    assert place.rows() == migrated.rows()


def test_four_opens_of_one_new_file_at_once(sqlite_url: str, empty_file: Place) -> None:
    at_once("open", sqlite_url, 4)
    persist.upgrade(empty_file.url)
    place = Place(sqlite_url)
    assert place.catalog() ^ empty_file.catalog() == set()
    assert place.rows("_meta", "persist_alembic_version") == empty_file.rows("_meta", "persist_alembic_version")
    assert place.ask("SELECT count(*) FROM chat_sessions") == [(4,)]


def test_alembic_upgrade_head(empty_database: Callable[[], Place], migrated: Place) -> None:
    """The environment says where; every other test here says it by `-x url=`."""
    place = empty_database()
    alembic("upgrade", "head", PERSIST_DATABASE_URL=place.url)
    assert persist.current(place.url) == HEAD
    persist.check(place.url)
    assert place.catalog() ^ migrated.catalog() == set()


def test_alembic_sees_no_difference_from_the_models(migrated: Place) -> None:
    code, said = forked("-x", f"url={migrated.url}", "check")
    assert code == 0, said
    assert "No new upgrade operations detected" in said


def test_an_upgrade_says_what_it_does(empty_database: Callable[[], Place]) -> None:
    url = empty_database().url
    code, said = forked("-x", f"url={url}", "upgrade", "head")
    first, *_, last, end = said.splitlines()
    assert (code, end) == (0, f"Upgraded from nothing to {HEAD}.")
    assert (first[:8], last[:8]) == ("  0001  ", f"  {HEAD}  ")
    assert forked("-x", f"url={url}", "upgrade", "head") == (0, "No revision was missing.\n")


def test_alembic_current(migrated: Place) -> None:
    code, said = forked("-x", f"url={migrated.url}", "current")
    assert code == 0, said
    assert said.startswith(HEAD)


def test_alembic_prints_sql_for_sqlite(sqlite_url: str) -> None:
    place = Place(sqlite_url)
    script = alembic("-x", f"url={sqlite_url}", "upgrade", "head", "--sql")
    assert not place.path.exists()
    place.run(*filter(str.strip, script.replace("BEGIN;", "").replace("COMMIT;", "").split(";\n")))
    persist.check(sqlite_url)
    with Store.open(sqlite_url) as store, store.read() as tx:
        assert tx.chat.sessions.list().items == []


def test_alembic_prints_sql_for_postgres(empty_postgres_url: str, postgres_url: str) -> None:
    script = alembic("-x", f"url={empty_postgres_url}", "upgrade", "head", "--sql")
    place = Place(empty_postgres_url)
    assert persist.current(empty_postgres_url) is None
    if not takes_triggers(empty_postgres_url):  # as docs/scale.md says of Citus
        script = re.sub("(?m)^CREATE TRIGGER .*", "", script)
    place.run(*filter(str.strip, script.split(";\n")))  # one by one, as psql sends them
    assert place.catalog() ^ Place(postgres_url).catalog() == set()
    assert place.rows() == Place(postgres_url).rows()


def test_a_downgrade_is_refused(migrated: Place) -> None:
    code, said = forked("-x", f"url={migrated.url}", "downgrade", "base")
    assert code != 0
    assert said == "FAILED: persist's schema only grows: restore a backup instead of downgrading.\n"
    assert persist.current(migrated.url) == HEAD


def test_a_host_has_a_history_of_its_own(tmp_path: Path) -> None:
    """By the ini that persist prints, `revision` and `merge` would write into the package; `history` needs no database."""
    ini = tmp_path / "persist.ini"
    ini.write_text(ini_text(), encoding="utf-8")
    revisions = sorted((ROOT / "alembic" / "versions").iterdir())
    for words in (("revision", "-m", "tickets"), ("revision", "--autogenerate"), ("merge", "heads")):
        code, said = forked("-c", str(ini), *words)
        assert code != 0
        assert said.startswith("FAILED: persist's history is its own, "), said
        assert said.count("\n") == 1
    assert sorted((ROOT / "alembic" / "versions").iterdir()) == revisions
    shown = subprocess.run(
        [sys.executable, "-m", "alembic", "-c", str(ini), "history"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert f" -> {HEAD} " in shown.stdout.splitlines()[0]
    assert list(tmp_path.iterdir()) == [ini]


@pytest.mark.parametrize("given", ["-x schema=", "PERSIST_SCHEMA_NAME"])
def test_alembic_upgrades_another_schema(given: str, empty_postgres_url: str) -> None:
    if given == "-x schema=":
        alembic("-x", f"url={empty_postgres_url}", "-x", "schema=agents", "upgrade", "head")
    else:
        alembic("-x", f"url={empty_postgres_url}", "upgrade", "head", PERSIST_SCHEMA_NAME="agents")
    assert persist.current(empty_postgres_url, schema="agents") == HEAD
    assert persist.current(empty_postgres_url) is None
    place = Place(empty_postgres_url)
    assert place.ask("SELECT DISTINCT schemaname::text FROM pg_tables WHERE tablename LIKE 'chat%'") == [("agents",)]
    in_public = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'"
    assert not {name for (name,) in place.ask(in_public)} & set(TABLES)


def test_a_bad_schema_name_is_refused(empty_postgres_url: str) -> None:
    command = [sys.executable, "-m", "alembic", "-x", f"url={empty_postgres_url}", "-x", 'schema=a"b', "upgrade", "head"]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "schema name" in done.stderr
