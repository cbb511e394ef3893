"""The clock of a store on a server: that of the server, unless this machine's agrees with it."""

from typing import Any

import pytest

from persist.db.dialects.postgres import connections
from persist.db.dialects.postgres.connections import ServerClock

MS = 1_000_000
MINUTE = 60_000 * MS


class Times:
    """This machine's two clocks and the server's, in nanoseconds; an answer takes 4 ms, and the server looks after 1 ms."""

    def __init__(self, server: int) -> None:
        self.wall, self.steady, self.server, self.asked = 1_700_000_000_000 * MS, 5 * MINUTE, server, 0

    def pass_(self, ns: int) -> None:
        self.wall, self.steady = self.wall + ns, self.steady + ns

    def exec_(self, statement: bytes) -> "Times":
        self.asked += 1
        self.pass_(1 * MS)
        self.told = self.wall + self.server
        self.pass_(3 * MS)
        return self

    ntuples = 1

    def get_value(self, row: int, column: int) -> bytes:
        return str(self.told // 1000).encode()


@pytest.fixture
def times(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    found = Times(request.param)
    monkeypatch.setattr(connections, "wall_ns", lambda: found.wall)
    monkeypatch.setattr(connections, "steady_ns", lambda: found.steady)
    return found


@pytest.mark.parametrize("times", [0, 2 * MS, -1 * MS], indirect=True)
def test_a_machine_that_agrees_keeps_its_own_time(times: Times) -> None:
    clock = ServerClock()
    clock.ask(times)
    times.pass_(90 * MS)
    assert clock.ms() == times.wall // MS


@pytest.mark.parametrize("times", [10 * MINUTE, -10 * MINUTE, 5 * MS], indirect=True)
def test_a_machine_that_disagrees_takes_the_servers(times: Times) -> None:
    clock = ServerClock()
    clock.ask(times)
    times.pass_(90 * MS)
    assert abs(clock.ms() - (times.wall + times.server) // MS) <= 2  # half of what the answer took


@pytest.mark.parametrize("times", [0, 10 * MINUTE], indirect=True)
def test_a_machine_whose_clock_is_set_goes_on_with_the_servers(times: Times) -> None:
    clock = ServerClock()
    clock.ask(times)
    before = clock.ms()
    times.wall -= 30 * MINUTE
    times.steady += 1000 * MS
    assert clock.ms() == before + 1000
    assert clock().timestamp() == pytest.approx(clock.us() / 1_000_000, abs=1e-6)


@pytest.mark.parametrize("times", [0], indirect=True)
def test_the_server_is_asked_again_after_ten_minutes(times: Times) -> None:
    clock = ServerClock()
    assert clock.is_due
    assert clock.ms() == times.wall // MS  # until then
    clock.ask(times)
    assert not clock.is_due
    times.pass_(10 * MINUTE + MS)
    assert clock.is_due


@pytest.mark.parametrize("times", [10 * MINUTE], indirect=True)
def test_a_server_that_does_not_answer_changes_nothing(times: Times) -> None:
    clock = ServerClock()
    clock.ask(times)
    before = clock.ms()
    times.ntuples = 0
    clock.ask(times)
    assert clock.ms() == before + 4
