"""The rules of a fair semaphore: no permit is lost or made, nobody is passed over, and whoever lives gets in."""

from itertools import count

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from persist.db.concurrency.semaphore import Permits


class Rules(RuleBasedStateMachine):
    """Leases are numbers, in the order in which they came. Whoever is never heard of again is only taken out by `expire`."""

    WIDTH = 2

    def __init__(self) -> None:
        super().__init__()
        self.permits: Permits[int] = Permits(self.WIDTH)
        self.numbers = count()
        self.living: set[int] = set()
        self.were_late: set[int] = set()
        self.now = 0.0

    @rule()
    def ask(self) -> None:
        lease = next(self.numbers)
        self.living.add(lease)
        if not self.permits.enter(lease):
            assert lease in self.permits.waiting

    @rule()
    def offer(self) -> None:
        self.now += 1
        waiting = set(self.permits.waiting)
        lease = self.permits.offer(self.now)
        if lease is None:
            assert not waiting or not self.permits.free
        else:
            ahead = {other for other in waiting if other < lease} - self.were_late
            assert not ahead or lease in self.were_late

    @precondition(lambda self: self.living)
    @rule(data=st.data())
    def accept(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(sorted(self.living)))
        if self.permits.accept(lease):
            assert lease in self.permits.held

    @precondition(lambda self: self.living)
    @rule(data=st.data(), twice=st.booleans())
    def leave(self, data: st.DataObject, twice: bool) -> None:
        lease = data.draw(st.sampled_from(sorted(self.living)))
        self.living.remove(lease)
        for _ in range(1 + twice):
            self.permits.leave(lease)

    @rule(age=st.integers(0, 3))
    def expire(self, age: int) -> None:
        self.permits.expire(self.now - age)
        self.were_late |= self.permits.late

    @invariant()
    def no_permit_is_lost_or_made(self) -> None:
        permits = self.permits
        assert permits.free + len(permits.held) + len(permits.offered) == self.WIDTH
        assert permits.free >= 0

    @invariant()
    def everybody_is_in_one_place(self) -> None:
        permits = self.permits
        places = [*permits.held, *permits.waiting, *permits.offered, *permits.late]
        assert sorted(places) == sorted(self.living)

    def teardown(self) -> None:
        """Whoever lives gets in, once those before them have left."""
        admitted = set(self.permits.held)
        for _ in range(2 * len(self.living) + 2):
            while self.permits.offer(self.now) is not None:
                pass
            admitted |= {lease for lease in sorted(self.living) if self.permits.accept(lease)}
            for lease in list(self.permits.held):
                self.permits.leave(lease)
        assert admitted == self.living


TestRules = Rules.TestCase
