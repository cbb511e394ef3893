"""What proves a change: the tests that `--lane` leaves, which `make test` has. `make test-all` has all, every night.

A case of more than a third of a second of the processor is of the night, unless KEPT names it. Which ones these are was
measured, and stands in night.txt: `pytest --renew-night` measures again, and writes the file. Beside it stands not_quick.txt:
what takes more than a sixteenth of a second, which `--quick` leaves out. `pytest --quick --renew-night` writes that one.

On SQLite every case runs. On Postgres a test runs its first case, so that each statement is sent there; where SQL, locks, plans
or types differ between the two, all its cases do. What is marked `every_way` runs all its cases in three ways: Store on Postgres
is what AsyncStore on Postgres runs in a thread.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from persist.schema.metadata import REVISIONS

BOTH = (
    "tests/browser/",
    "tests/contract/values/",
    "tests/contract/usage/",
    "tests/contract/workflows/test_statistics",
    "tests/contract/workflows/test_queue.py",
    "tests/contract/workflows/test_limits.py",
    "tests/contract/workflows/test_claim_plans.py",
    "tests/contract/workflows/test_dead_workers.py",
    "tests/contract/workflows/test_execution_search.py",
    "tests/contract/chat/test_session_lists.py",
    "tests/contract/chat/test_deltas.py",
    "tests/contract/conversations/test_folding.py",
    "tests/contract/events/",
    "tests/contract/messaging/test_messages.py",
    "tests/contract/messaging/test_session_list.py",
    "tests/contract/programs/test_row_guards.py",
    "tests/contract/test_transact.py",
    "tests/contract/test_transactions.py",
    "tests/contract/test_unreadable_rows.py",
    "tests/concurrency/",
    "tests/schema/",
)
"""Where the databases differ: how they compare and fold text, store JSON and instants, lock, plan, count and guard."""

NIGHT = {
    "tests/browser/test_crashes.py": "a server is killed",
    "tests/browser/test_recipe.py": "a page of docs/ is built from an empty folder",
    "tests/browser/test_program.py": "a program is started as a person does",
    "tests/browser/ui/test_live.py": "other processes write, one is killed, and the page waits for what they say",
    "tests/browser/ui/test_rows.py": "other processes write, and the page waits for it",
    "tests/cli/test_interrupted_copy.py": "copies are killed",
    "tests/concurrency/test_killed.py": "recorders, workers and writers are killed, and servers stall",
    "tests/concurrency/test_moving_tenants.py": "tenants move between the nodes of a cluster",
    "tests/concurrency/test_restarted_servers.py": "servers are begun anew",
    "tests/concurrency/test_switching_under_load.py": "many processes write for seconds",
    "tests/maintenance/test_backup.py::test_writers_go_on": "a process writes as long as three copies take",
    "tests/maintenance/test_copy_values.py::test_whatever_is_stored_comes_back": "any documents, through three databases",
    "tests/maintenance/test_copy.py::test_memory_does_not_grow": "thousands of rows",
    "tests/maintenance/test_doctor_files.py::test_a_file_": "files of every revision, and of every program",
    "tests/maintenance/test_doctor_files.py::test_a_flipped_byte": "files are damaged byte by byte",
    "tests/maintenance/test_erasing.py::test_rows_without": "an erasure for each row that lost what it belongs to",
    "tests/maintenance/test_erasing_killed.py": "erasures are killed",
    "tests/maintenance/test_erasing_tenants.py": "roles and policies are made for tenants of one schema",
    "tests/maintenance/test_erasing_ways.py::test_each_way_of_each_kind": "an erasure for each way of each kind",
    "tests/maintenance/test_import_lines.py::test_every_cell": "every cell of every table",
    "tests/maintenance/test_import_lines.py::test_memory": "thousands of rows",
    "tests/maintenance/test_moving.py::test_a_log_and_its_consumers_go_on[postgres-sqlite-copy]": "as with lines",
    "tests/maintenance/test_moving.py::test_a_log_and_its_consumers_go_on[postgres-sqlite-steps]": "as with lines",
    "tests/maintenance/test_prune_steps.py::test_two_prunes": "processes prune at once",
    "tests/maintenance/test_pruning.py::test_a_prune_takes_what_it_says_and_nothing_else[sqlite-tables": "each table alone",
    "tests/maintenance/test_prune_steps.py::test_a_killed_prune": "a prune is killed",
    "tests/maintenance/test_resumable_copy.py::test_a_comparison": "copies of many transactions",
    "tests/maintenance/test_resumable_copy.py::test_a_second_process": "copies of many transactions",
    "tests/maintenance/test_resumable_copy.py::test_children_of_parents": "copies of many transactions",
    "tests/maintenance/test_resumable_copy.py::test_it_does_not_read_again": "copies of many transactions",
    "tests/maintenance/test_resumable_kills.py": "copies are killed",
    "tests/maintenance/test_stuck_tails.py::test_doctor_names_it_and_maintain_folds_the_others_and_says_what_is_left[sqlite, a": (
        "each way in which a row can be spoilt"
    ),
    "tests/maintenance/test_unknown.py::test_any_name_and_any_value": "any values, in files of their own",
    "tests/maintenance/test_unreadable.py::test_a_file_full_of_them[words": "every table is spoilt once more",
    "tests/maintenance/test_unreadable.py::test_every_cell": "every cell of every table",
    "tests/roundtrips/test_bounds.py::test_every_verb_keeps_its_bound_however": "every verb in every way to call it",
    "tests/systems/": "files on pretended systems",
    "tests/unit/test_missing_server.py::test_a_run_without": "runs of pytest in processes of their own",
    "tests/unit/test_testing_fixtures.py": "runs of pytest in processes of their own",
    "tests/walks/": "pages of docs/ are followed by a shell",
}
"""Tests, files and folders of the night, by how they begin, and why."""

SLOW = 0.35
"""Seconds of the processor, with those of a test's own processes and servers."""

KEPT = (
    "tests/architecture/test_dependencies",
    "tests/architecture/test_keysets",
    "tests/architecture/test_map",
    "tests/architecture/test_sentences",
    "tests/architecture/test_sources",
    "tests/contract/chat/test_ai_sdk.py::test_the_final_messages_are_the_sdks[sqlite",
    "tests/contract/conversations/test_vectors.py::test_every_way_gives_the_same_to_the_last_bit[sqlite-1",
    "tests/contract/test_toy_domain.py::test_it_has_everything_that_a_domain_has[sqlite",
    "tests/contract/usage/",
    "tests/contract/workflows/test_limits.py",
    "tests/contract/workflows/test_queue.py",
    "tests/faults/test_grants.py::test_what_a_tenant_may_not",
    "tests/maintenance/test_backup.py::test_a_copy_is_the_store",
    "tests/maintenance/test_blobs.py::test_a_rebuilt_database",
    "tests/maintenance/test_blobs.py::test_the_doctor_finds",
    "tests/maintenance/test_doctor_catalog.py::test_a_healthy_store",
    "tests/maintenance/test_doctor_catalog.py::test_drift",
    "tests/maintenance/test_doctor_rows.py::test_what_waits_for_nobody",
    "tests/maintenance/test_erasing.py::test_nothing_of_one_remains",
    "tests/maintenance/test_erasing_rules.py",
    "tests/maintenance/test_erasing_ways.py",
    "tests/maintenance/test_export.py::test_one_session",
    "tests/maintenance/test_moving.py::test_everything_arrives",
    "tests/maintenance/test_prune_counts.py",
    "tests/maintenance/test_prune_rules.py",
    "tests/maintenance/test_pruning.py::test_a_prune_takes_what_it_says_and_nothing_else[postgres-domains]",
    "tests/maintenance/test_pruning.py::test_a_prune_takes_what_it_says_and_nothing_else[sqlite-domains]",
    "tests/maintenance/test_pruning.py::test_maintain",
    "tests/maintenance/test_pruning.py::test_settings",
    "tests/maintenance/test_quarantine.py::test_what_comes_back",
    "tests/maintenance/test_resumable_copy.py::test_what_changes_after_an_interruption_is_copied_too[sqlite-postgres-stop1",
    "tests/maintenance/test_unknown.py::test_it_is_carried_there_and_back",
    "tests/maintenance/test_unreadable.py::test_a_file_full_of_them",
    "tests/roundtrips/test_bounds.py::test_every_verb_keeps_its_bound[-",
    "tests/schema/test_catalogs.py",
    "tests/schema/test_commands.py::test_alembic_sees_no_difference",
    "tests/schema/test_upgrades.py::test_an_upgrade_keeps",
    "tests/statemachines/test_machines.py",
    "tests/statemachines/test_refusals.py",
    "tests/test_docs.py",
    "tests/unit/test_accumulator.py",
    "tests/unit/test_json.py",
    "tests/unit/workflows/",
)
"""Slow cases that prove a change all the same: no quick one fails with them."""

QUICK = 0.06
"""Seconds that a case of `--quick` may take. Rules for the code are always among its cases: no other test knows them."""
ALWAYS_QUICK = ("tests/architecture/",)


def _lines(name: str) -> frozenset[str]:
    return frozenset(Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines())


MEASURED, NOT_QUICK = _lines("night.txt"), _lines("not_quick.txt")
"""The cases of the night, and those that are not quick, by what they took. A test without parameters stands for all its cases."""

NEAR = frozenset({REVISIONS[0], *REVISIONS[-2:]})
"""The revisions of a change: the oldest, the previous and the newest. Those between are for the night."""


def write_measured(seconds: Mapping[str, float], *, quick: bool) -> None:
    """Write which tests of a run are slow; those not run stay as they are. `seconds`: what each case took, by its id."""
    night = "night.txt", MEASURED, SLOW, (*KEPT, *NIGHT)
    name, measured, bound, whatever = ("not_quick.txt", NOT_QUICK, QUICK, ALWAYS_QUICK) if quick else night
    slow = {case for case, taken in seconds.items() if taken > bound}
    ran = {test for case in seconds for test in (case, function(case))}
    left = sorted(test for test in (measured - ran) | slow if not test.startswith(whatever))
    Path(__file__).with_name(name).write_text("\n".join(left) + "\n", encoding="utf-8")


def function(case: str) -> str:
    """The id of a case's test function."""
    return case.partition("[")[0]


def chosen(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests that prove a change, and those of the night."""
    seen = set[tuple[str, str]]()
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        (kept if _proves(item, seen) else left).append(item)
    return kept, left


def _proves(item: pytest.Item, seen: set[tuple[str, str]]) -> bool:
    path = item.nodeid.partition("::")[0]
    if item.nodeid.startswith(tuple(NIGHT)) or function(item.nodeid) in MEASURED:
        return False
    params: dict[str, object] = item.callspec.params if hasattr(item, "callspec") else {}
    revision = params.get("revision")
    if isinstance(revision, str) and revision in REVISIONS and revision not in NEAR:
        return False
    every_way = item.get_closest_marker("every_way") is not None
    if every_way and params.get("backend") == "postgres" and params.get("face") == "sync":
        return False
    quick = item.nodeid not in MEASURED
    if params.get("backend") != "postgres" or path.startswith(BOTH) or every_way:
        return quick
    # Where the first case is of the night, no other one takes its place: it would take as long.
    test = path, getattr(item, "originalname", item.name)
    first = test not in seen
    seen.add(test)
    return first and quick
