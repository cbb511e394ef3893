"""Values that nobody should give, streams and files that are not what they should be, and whole lives beside a plain model."""

import time
import traceback
from collections.abc import Callable
from typing import Any

import hypothesis
import orjson
from click.testing import CliRunner
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from persist import Store
from persist.cli import main
from tests.contract.chat.scenes import VECTORS
from tests.statemachines.bad_arguments import huge
from tests.statemachines.both_databases import alike, twins
from tests.statemachines.imports import compare_imports, exported, spoilt
from tests.statemachines.logs import damaged, read_damaged, write_log
from tests.statemachines.machine import explore
from tests.statemachines.registry import MACHINES
from tests.statemachines.scene import make
from tests.statemachines.streams import compare_streams, streams
from tests.statemachines.values import explore_values, places
from tests.torture.scenario import Ground, Scenario, Tally

_AT_ONCE = 25
"""Examples of one draw: the first ones are always the simplest."""


def one_value_domain(ground: Ground, tally: Tally) -> None:
    """What is refused is refused with an error of ours, writes nothing and dooms nothing; on both databases, with both faces."""
    awaited = (ground.random.random() < 0.5, ground.random.random() < 0.5)
    with places(ground.new_url(), ground.new_server_url(), awaited=awaited) as pair:
        for number in ground.rounds():
            seed = ground.random.randrange(2**32)
            values = {"values": huge} if number % 40 == 39 else {}
            problems, outcomes = explore_values(pair, examples=1 if values else _AT_ONCE, seed=seed, **values)
            tally.rounds += len(outcomes)
            tally.acknowledged += outcomes.count(None)
            tally.errors.update(error for error in outcomes if error is not None)
            tally.problems += [f"{problem} (values of {seed}, {awaited})" for problem in problems]


def lives(ground: Ground, tally: Tally) -> None:
    """Every step ends alike on SQLite, on Postgres and in a plain model, and leaves the same behind."""
    with twins(ground.new_url(), ground.new_server_url()) as (clock, stores):
        for number in ground.rounds():
            kind = MACHINES[number % len(MACHINES)]
            seed = ground.random.randrange(2**32)
            try:
                explore(kind, stores, clock, steps=25, examples=5, seed=seed)
            except Exception as error:
                tally.problems.append("\n".join([f"{kind.__name__} of {seed}: {error}", *getattr(error, "__notes__", [])]))
            tally.rounds += 1


def broken_streams(ground: Ground, tally: Tally) -> None:
    """`feed` refuses what cannot follow, the rest goes on, and what is stored is what the pure reducer makes of what it took."""
    with twins(ground.new_url(), ground.new_server_url()) as (_, stores):

        def one(chunks: list[Any], save_on: str) -> None:
            for store in stores:
                alike(store)
            tally.problems.extend(compare_streams(stores, chunks, save_on=save_on))

        _draw(ground, tally, one, streams(), st.sampled_from(["chunk", "step", "turn"]))


def damaged_files(ground: Ground, tally: Tally) -> None:
    """Session logs, exports and the input of `persist record` with bytes changed: typed errors, and nothing half-imported."""
    path = write_log(ground.folder, ["é\u2028", "x" * 3000, '"\\'])
    log = path.read_bytes()
    with Store.open(ground.new_url()) as source:
        make(source)
        whole = exported(source)
    stream = b"".join(b"data: %s\n\n" % orjson.dumps(chunk) for chunk in VECTORS[0]["chunks"])
    url = ground.new_url()
    with twins(ground.new_url(), ground.new_server_url()) as (_, stores):

        def one(read: bytes, imported: bytes, recorded: bytes) -> None:
            tally.problems.extend(read_damaged(path, read))
            tally.problems.extend(compare_imports(stores, imported))
            tally.problems.extend(_record(url, recorded))

        _draw(ground, tally, one, damaged(log), spoilt(whole), damaged(stream))


def _draw(ground: Ground, tally: Tally, function: Callable[..., None], *strategies: st.SearchStrategy[Any]) -> None:
    """Examples as long as there is time; problems are noted by the function, so none ends it."""
    for _ in ground.rounds():
        seed, before = ground.random.randrange(2**32), len(tally.problems)

        @hypothesis.seed(seed)
        @settings(
            max_examples=_AT_ONCE, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
        )
        @given(st.tuples(*strategies))
        def examples(drawn: tuple[Any, ...]) -> None:
            if time.monotonic() < ground.ends or not tally.rounds:
                try:
                    function(*drawn)
                except Exception:  # noted here: the whole of what was drawn, which Hypothesis would say, is too much to read
                    tally.problems.append(traceback.format_exc(limit=-5))
                tally.rounds += 1

        examples()
        tally.problems[before:] = [f"{problem} (drawn by {seed})" for problem in tally.problems[before:]]


def _record(url: str, stream: bytes) -> list[str]:
    result = CliRunner().invoke(main, ["record", "--url", url, "--session", "new", "--agent", "build", "-q"], input=stream)
    if result.exit_code in (0, 1, 2) and isinstance(result.exception, SystemExit | None):
        return []
    return [f"persist record ended with {result.exit_code} and {result.exception!r} on {stream!r:.500}"]


SCENARIOS = [
    Scenario("hostile values", ("both",), one_value_domain, weight=2.0),
    Scenario("lives beside a model", ("both",), lives, weight=2.0),
    Scenario("broken streams", ("both",), broken_streams),
    Scenario("damaged files", ("both",), damaged_files),
]
