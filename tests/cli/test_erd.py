"""`persist erd`: needs no database."""

from click.testing import CliRunner, Result

from persist.cli import main
from persist.maintenance import erd
from tests.cli.golden import assert_golden


def _run(*args: str) -> Result:
    return CliRunner().invoke(main, list(args), env={"PERSIST_DATABASE_URL": None})


def test_the_diagram_of_all_tables() -> None:
    result = _run("erd")
    assert (result.exit_code, result.stdout, result.stderr) == (0, erd(), "")


def test_the_diagram_of_one_domain() -> None:
    assert_golden("erd-messaging", _run("erd", "--domain", "messaging").stdout)


def test_a_domain_there_is_none_of() -> None:
    result = _run("erd", "--domain", "mesaging")
    assert (result.exit_code, result.stdout) == (1, "")
    assert_golden("erd-unknown", result.stderr)
