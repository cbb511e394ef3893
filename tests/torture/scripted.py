"""Every domain's transactions, killed."""

from functools import partial

from tests.torture import conversation_writes as conversing
from tests.torture import telemetry_writes as observing
from tests.torture import transitions
from tests.torture.kill_rounds import killed_scripts
from tests.torture.scenario import Scenario

_SCRIPTS = [*transitions.SCRIPTS, *conversing.SCRIPTS, *observing.SCRIPTS]

SCENARIOS = [
    Scenario("writers of every domain killed", ("sqlite", "postgres"), partial(killed_scripts, scripts=_SCRIPTS), weight=2.0)
]
