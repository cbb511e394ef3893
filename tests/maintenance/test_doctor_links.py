"""`maintenance.doctor` on links of instances: those that several rows tell of."""

from persist import Store
from persist.maintenance import doctor
from persist.testing import FrozenClock
from tests.schema.places import Place


def test_a_link_that_several_rows_tell_of(database_url: str, clock: FrozenClock) -> None:
    place = Place(database_url)
    table, number = place.named("github_link_statuses"), "resource_number"
    with Store.open(database_url, clock=clock) as store:
        with store.begin() as tx:
            for issue in (1, 2):
                tx.telemetry.links.record_error(f"https://github.com/o/r/issues/{issue}", "502", instance_id="box")
        assert doctor(store) == []
        place.run(
            f"INSERT INTO {table} (instance_id, url, kind, host, owner, repo, {number}, fetched_at, refresh_after)"
            f" SELECT instance_id, 'https://github.com/o/r/issues/1', kind, host, owner, repo, {number}, 5, 5"
            f" FROM {table} WHERE {number} = 1"
        )
        (found,) = doctor(store)
        subject = "link https://github.com/o/r/issue/1 of instance box"
        assert (found.code, found.severity, found.subject) == ("link_repeated", "info", subject)
        with store.begin() as tx:
            tx.telemetry.links.upsert("https://github.com/o/r/issues/1", fetched_at=clock(), instance_id="box")
        assert doctor(store) == []
