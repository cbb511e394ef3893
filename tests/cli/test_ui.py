"""`persist ui`: what it prints, which port it takes, what it asks a token for, and how it ends."""

import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from persist import Store
from persist.errors import InvalidValue, Unavailable
from persist.ui import serving
from persist.ui.serving import Server, is_loopback, listen
from persist.ui.stores import OneStore
from persist.ui.views import Site
from tests.cases import each
from tests.cli.conftest import Command
from tests.cli.test_processes import PERSIST, environment_of

pytestmark = pytest.mark.one_database


@contextmanager
def started(url: str, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, and the address that it printed; it is killed in the end."""
    command = [*PERSIST, "ui", "--url", url, *options]
    with subprocess.Popen(command, env=environment_of(url), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found, process.stderr
            yield process, found[0]
        finally:
            process.kill()


def asked(address: str) -> str:
    with urllib.request.urlopen(address, timeout=20) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_asked_to_stop_also_while_somebody_looks_on(database_url: str, number: signal.Signals) -> None:
    with Store.open(database_url) as store:
        session = store.chat.sessions.create(agent="build", model={})
    with started(database_url, "--port", "0") as (process, address):
        assert "persist" in asked(address)
        with urllib.request.urlopen(f"{address}chat/{session.id}/live", timeout=20) as live:
            assert live.readline()
            process.send_signal(number)
            _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")


def test_the_next_free_port_is_taken_where_none_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with listen("127.0.0.1", 0) as taken:
        number = taken.getsockname()[1]
        monkeypatch.setattr(serving, "PORT", number)
        with listen("127.0.0.1", None) as free:
            assert number < free.getsockname()[1] < number + 50
        with pytest.raises(Unavailable, match=f"127.0.0.1:{number}"):
            listen("127.0.0.1", number)


@each("host", ["no.such.host.invalid", "256.1.1.1", ""])
def test_a_host_that_is_not_this_machine_is_a_sentence(host: str) -> None:
    if host:
        with pytest.raises(Unavailable):
            listen(host, 0)
    assert not is_loopback(host)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    sockets: list[socket.socket] = []

    def make(host: str, token: str | None = None) -> Server:
        made = Server(OneStore(lambda: Store.open(tmp_path / "state.db"), Site()), host, 0, token)
        sockets.append(made._socket)
        return made

    yield make
    for one in sockets:
        one.close()


def test_every_other_host_than_this_machine_has_a_token(server: Callable[..., Server]) -> None:
    assert "token" not in server("127.0.0.1").address
    assert server("127.0.0.1", "sesame-open").address.endswith("/?token=sesame-open")
    made = re.search(r"\?token=(\S{32,})$", server("0.0.0.0").address)
    assert made
    assert made[1] != server("0.0.0.0").address.partition("=")[2]


@each("token", ["short", "ü" * 10, "a\x00bcdefgh", ""])
def test_a_token_that_protects_nothing_is_refused(server: Callable[..., Server], token: str) -> None:
    if token:
        with pytest.raises(InvalidValue, match="token"):
            server("127.0.0.1", token)


def test_a_missing_file_a_missing_folder_and_a_missing_part_are_sentences(command: Command, tmp_path: Path) -> None:
    missing = command("ui", str(tmp_path / "none.db"))
    assert (missing.exit_code, missing.output.count("\n")) == (1, 1)
    assert "none.db" in missing.output
    no_logs = command("ui", "--session-logs", str(tmp_path / "none"))
    assert (no_logs.exit_code, "There is no folder" in no_logs.output) == (1, True)


def test_without_the_extra_the_command_says_what_to_install(tmp_path: Path) -> None:
    hide = "import sys; sys.modules['nh3'] = None; from persist.cli import main; main(prog_name='persist')"
    run = subprocess.run([sys.executable, "-c", hide, "ui"], env=environment_of("x"), capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    assert run.stderr == "Error: persist.ui needs the parts of its pages: pip install 'agent-persist[ui]'.\n"


def test_a_page_of_another_host_is_refused(database_url: str) -> None:
    with Store.open(database_url):
        pass
    with started(database_url, "--port", "0") as (_, address):
        request = urllib.request.Request(f"{address}runs", headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=20)
        assert refused.value.code == 421
        refused.value.close()
