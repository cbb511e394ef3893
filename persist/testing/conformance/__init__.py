"""Checks of a framework's expectations of a store for its state, for stores of any author.

A module per framework has `CHECKS`, coroutine functions that take a function that makes the object under test. One check may fail
while others pass, so make each a test:

    import pytest
    from persist.testing.conformance import openai_agents

    @pytest.mark.parametrize("check", openai_agents.CHECKS, ids=lambda check: check.__name__)
    async def test_my_session(check):
        await check(lambda session_id: MySession(session_id, database))

Without pytest, `await run(openai_agents.CHECKS, make)` runs all of them and reports. Checks name what they store with new ids, so
they may run on one database, also side by side, and need nothing to be removed between them. A module needs its framework. Where
a framework has several interfaces, there are more tuples of checks, such as `a2a.WEBHOOK_CHECKS`. What the framework's own store
in memory does not do either is marked: `Report.beyond` names these checks.
"""

from persist.testing.conformance.running import NotConformant, Report, run

__all__ = ["NotConformant", "Report", "run"]
