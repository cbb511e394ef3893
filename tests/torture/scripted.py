"""Every domain's transactions, killed."""

from functools import partial

from tests.torture import conversing, observing, transitions
from tests.torture.rounds import killed_scripts
from tests.torture.scenario import Scenario

SCENARIOS = [
    Scenario("workers killed between transitions", ("sqlite", "postgres"), partial(killed_scripts, scripts=transitions.SCRIPTS)),
    Scenario("writers of conversations killed", ("sqlite", "postgres"), partial(killed_scripts, scripts=conversing.SCRIPTS)),
    Scenario("telemetry, graphs, programs killed", ("sqlite", "postgres"), partial(killed_scripts, scripts=observing.SCRIPTS)),
]
