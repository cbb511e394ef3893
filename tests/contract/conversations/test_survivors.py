"""Whatever is forked, recorded, deleted and pruned: each branch that is left shows what a plain model of it says."""

import re
from datetime import timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from persist.conversations.schemas import PruneReport
from tests.contract.conversations.making import (
    delete_branch,
    delete_session,
    fork,
    fork_into,
    make_branch,
    make_session,
    prune,
    say,
    set_status,
    stored,
)
from tests.contract.conversations.survivor_model import Model, Session, dumped, one_of
from tests.examples import examples

DAY = timedelta(days=1)
picks = st.integers(0, 10_000)


class Survivors(Model):
    def teardown(self) -> None:
        try:
            self.leave_nothing()
        finally:
            self.patch.stop()
        self.store.close()
        self.folder.cleanup()

    # -- making

    @rule(running=st.booleans())
    def open_session(self, running: bool) -> None:
        id = self.new("s")
        made = make_session(self.store, id, status="running" if running else None)
        self.pools[made.progression_id] = []
        self.sessions[id] = Session(made.progression_id, self.clock(), running)

    @precondition(lambda self: self.sessions)
    @rule(pick=picks)
    def open_branch(self, pick: int) -> None:
        id, session = self.new("b"), one_of(self.sessions, pick)
        make_branch(self.store, session, id)
        self.add_branch(id, session)

    @precondition(lambda self: self.sessions)
    @rule(pick=picks, which=picks)
    def open_view(self, pick: int, which: int) -> None:
        """A branch that shares the progression of any session or branch."""
        id, session = self.new("v"), one_of(self.sessions, pick)
        make_branch(self.store, session, id, progression_id=one_of(self.pools, which))
        self.add_branch(id, session)

    @precondition(lambda self: self.branches)
    @rule(pick=picks, at=picks)
    def fork_inside(self, pick: int, at: int) -> None:
        parent = one_of(self.branches, pick)
        upto = at % (len(self.history(parent)) + 1)
        inherited = self.history(parent)[:upto]
        child = fork(self.store, parent, upto)
        above = self.branches[parent]
        self.add_branch(child, above.session, inherited=inherited, parent=parent, system=above.system)

    @precondition(lambda self: self.branches)
    @rule(pick=picks, which=picks, at=picks)
    def fork_elsewhere(self, pick: int, which: int, at: int) -> None:
        parent, session = one_of(self.branches, pick), one_of(self.sessions, which)
        upto = at % (len(self.history(parent)) + 1)
        inherited = self.history(parent)[:upto]
        child = fork_into(self.store, session, parent, upto, id=self.new("f"))
        self.add_branch(child, session, inherited=inherited, parent=parent)

    @precondition(lambda self: self.branches)
    @rule(pick=picks, which=picks, again=st.booleans(), system=st.booleans())
    def record(self, pick: int, which: int, again: bool, system: bool) -> None:
        """A new message, or one that is there already."""
        id = one_of(self.branches, pick)
        message = one_of(self.messages, which) if again and self.messages else self.new("m")
        say(self.store, id, message, role="system" if system else "user")
        branch = self.branches[id]
        session = self.sessions[branch.session]
        self.messages.setdefault(message, self.put_at.setdefault(message, self.clock()))
        for pool in {session.pool} if message in branch.inherited else {branch.pool, session.pool}:
            if message not in self.pools[pool]:
                self.pools[pool].append(message)
        if system:
            branch.system = message
        session.pointers = [session.pointers[0] if session.pointers else message, message]
        session.updated_at = self.clock()

    @precondition(lambda self: self.branches)
    @rule(pick=picks, at=picks, dropped=st.integers(0, 3), turned=st.booleans())
    def compact(self, pick: int, at: int, dropped: int, turned: bool) -> None:
        """Places of a progression that a branch shows go, from any of them on; or all trade places."""
        pool = self.branches[one_of(self.branches, pick)].pool
        items = self.pools[pool]
        start = at % (len(items) + 1)
        after = items[::-1] if turned else [*items[:start], *items[start + dropped :]]
        unchanged = next((n for n, (old, new) in enumerate(zip(items, after, strict=False)) if old != new), len(after))
        with self.changing(pool, unchanged, after), self.store.begin() as tx:
            tx.conversations.progressions.replace(pool, after)

    @precondition(lambda self: self.branches)
    @rule(pick=picks, at=picks)
    def insert(self, pick: int, at: int) -> None:
        """A message that nobody has put comes between the places of a progression that a branch shows."""
        pool, id = self.branches[one_of(self.branches, pick)].pool, self.new("g")
        place = at % (len(self.pools[pool]) + 1)
        after = [*self.pools[pool][:place], id, *self.pools[pool][place:]]
        with self.changing(pool, place, after), self.store.begin() as tx:
            assert tx.conversations.progressions.insert(pool, place, id)
        with self.changing(pool, place, self.pools[pool][:place] + self.pools[pool][place + 1 :]), self.store.begin() as tx:
            assert tx.conversations.progressions.remove(pool, id)

    @precondition(lambda self: any(self.pools[branch.pool] for branch in self.branches.values()))
    @rule(pick=picks, at=picks, to=picks)
    def move(self, pick: int, at: int, to: int) -> None:
        """A message leaves its place in a progression that a branch shows, and comes to another one."""
        pool = self.branches[one_of([id for id, one in self.branches.items() if self.pools[one.pool]], pick)].pool
        place = at % len(self.pools[pool])
        id = self.pools[pool][place]
        first = self.pools[pool].index(id)
        rest = [one for one in self.pools[pool] if one != id]
        with self.changing(pool, first, rest), self.store.begin() as tx:
            assert tx.conversations.progressions.remove(pool, id)
        place = to % (len(rest) + 1)
        with self.changing(pool, place, [*rest[:place], id, *rest[place:]]), self.store.begin() as tx:
            assert tx.conversations.progressions.insert(pool, place, id)

    @precondition(lambda self: any(session.running for session in self.sessions.values()))
    @rule(pick=picks)
    def end(self, pick: int) -> None:
        id = one_of([id for id, session in self.sessions.items() if session.running], pick)
        assert set_status(self.store, id, "completed")
        self.sessions[id].running, self.sessions[id].updated_at = False, self.clock()

    @rule(hours=st.integers(1, 60))
    def wait(self, hours: int) -> None:
        self.clock.advance(delta=timedelta(hours=hours))

    # -- taking away

    @precondition(lambda self: self.branches)
    @rule(pick=picks)
    def delete_a_branch(self, pick: int) -> None:
        id = one_of(self.branches, pick)
        assert delete_branch(self.store, id)
        self.forget([], [id])

    @precondition(lambda self: len(self.sessions) > 1)
    @rule(pick=picks)
    def delete_a_session(self, pick: int) -> None:
        id = one_of(self.sessions, pick)
        assert delete_session(self.store, id)
        self.forget([id], [])

    @rule(keep_days=st.sampled_from([0, 1, 3]), keep_n=st.sampled_from([0, 1, 2]))
    def prune(self, keep_days: int, keep_n: int) -> None:
        before = dumped(self.path)
        foretold = prune(self.store, keep_days=keep_days, keep_n=keep_n, dry_run=True)
        assert dumped(self.path) == before
        report = prune(self.store, keep_days=keep_days, keep_n=keep_n)
        latest = sorted(self.sessions, key=lambda id: (self.sessions[id].updated_at, id), reverse=True)[:keep_n]
        cutoff, guard = self.clock() - keep_days * DAY, self.clock() - DAY
        victims = [
            id
            for id, session in self.sessions.items()
            if not session.running and session.updated_at < cutoff and id not in latest
        ]
        candidates = {
            *(message for id in victims for message in (*self.pools[self.sessions[id].pool], *self.sessions[id].pointers)),
            *(
                message
                for branch in self.branches.values()
                if branch.session in victims
                for message in (*self.pools[branch.pool], branch.system)
            ),
        }
        sizes = len(self.branches), len(self.pools), len(self.messages)
        self.forget(victims, [])
        named = {message for pool in self.pools.values() for message in pool}
        named |= {message for session in self.sessions.values() for message in session.pointers}
        if self.most_copied < 0:
            named |= {message for branch in self.branches.values() for message in branch.inherited}
        named |= {branch.system for branch in self.branches.values() if branch.system is not None}
        for message, put_at in list(self.messages.items()):
            if message not in named and (message in candidates or put_at < guard):
                del self.messages[message]
        branches, pools, messages = sizes
        assert report == foretold
        if self.most_copied < 0:  # what a former branch keeps may be more than its forks show, and is no less
            there = stored(self.store, *self.all_messages())
            assert set(there) >= set(self.messages)
            self.messages = {id: self.put_at[id] for id in there}
            assert report.sessions == len(victims)
            return
        assert report == PruneReport(
            sessions=len(victims),
            branches=branches - len(self.branches),
            progressions=pools - len(self.pools),
            messages=messages - len(self.messages),
        )

    def forget(self, sessions: list[str], branches: list[str]) -> None:
        """What the model keeps when these went: forks of theirs have their history as their own."""
        gone = {*branches, *(id for id, branch in self.branches.items() if branch.session in sessions)}
        heirs = {id: self.history(id) for id, branch in self.branches.items() if branch.parent in gone and id not in gone}
        for id in gone:
            del self.branches[id]
        for id in sessions:
            del self.sessions[id]
        self.orphan(heirs)
        for pool in set(self.pools) - set(self.owners()):
            del self.pools[pool]

    def all_messages(self) -> list[str]:
        """The ids of those that ever were."""
        return [f"m{number:03}" for number in range(self.number + 1)]

    def leave_nothing(self) -> None:
        """With the last of them goes whatever was kept for it."""
        for id in sorted(self.branches):
            assert delete_branch(self.store, id)
        for id in sorted(self.sessions):
            assert delete_session(self.store, id)
        self.clock.advance(delta=2 * DAY)
        prune(self.store)
        left = [table for table, rows in dumped(self.path).items() if rows]
        assert not [table for table in left if re.match(r"branches|progression|messages", table)]

    # -- looking

    @invariant()
    def everything_is_as_the_model_says(self) -> None:
        with self.store.read() as tx:
            there = tx.conversations
            for id, branch in self.branches.items():
                assert [one.id for one in there.branches.history(id)] == self.history(id)
                assert there.branches.get(id).system_msg_id == branch.system
            for id, items in self.pools.items():
                assert there.progressions.get(id) == items
            for id, session in self.sessions.items():
                found = there.sessions.get(id)
                assert [one for one in (found.first_msg_id, found.last_msg_id) if one is not None] == session.pointers
                assert (found.progression_id, found.updated_at) == (session.pool, session.updated_at)
            assert set(there.messages.get_many(self.all_messages())) == set(self.messages)


class Kept(Survivors):
    """However little it is, former branches keep what forks inherit."""

    most_copied = -1


TestSurvivors = pytest.mark.long(Survivors.TestCase)
TestSurvivors.settings = settings(max_examples=examples(12), stateful_step_count=30, deadline=None)
TestSurvivorsOfFormerBranches = pytest.mark.long(Kept.TestCase)
TestSurvivorsOfFormerBranches.settings = settings(max_examples=examples(12), stateful_step_count=30, deadline=None)
