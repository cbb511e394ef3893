"""The built package: what is in it, and that it works from anywhere, without the repository."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from persist import __version__
from persist.schema.metadata import HEAD
from tests.schema.places import ROOT, VERSION_TABLE, Place, revision_files

SOURCES = ("persist", "alembic", "alembic.ini", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "hatch_build.py")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist it was built from."""
    # A copy, so that nothing that lies about in the working tree decides what is built.
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(source)]
    done = subprocess.run(command, cwd=target, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,), (sdist,) = target.glob("*.whl"), target.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def python(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment with the wheel in it.

    Its dependencies are those of the environment that runs the tests: a folder in a .pth file, whose own .pth files (an
    editable install of persist is one) are not read.
    """
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False, symlinks=True)
    interpreter = folder / "bin" / "python"
    options = ["--python", str(interpreter), "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", *options, str(built[0])], check=True)
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages,) = (folder / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in sorted(paths)))
    return interpreter


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


@pytest.fixture
def run(python: Path, elsewhere: Path) -> Callable[..., str]:
    """Run a program of the new environment in an unrelated folder; its output."""

    def run_(program: str, *arguments: str) -> str:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERSIST_", "PYTHON"))}
        command = [str(python.with_name(program)), *arguments]
        done = subprocess.run(command, cwd=elsewhere, env=kept, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run_


def test_the_wheel_holds_the_package_and_its_revisions(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        names = set(wheel.namelist())
        metadata = wheel.read(f"agent_persist-{__version__}.dist-info/METADATA").decode()
    assert {"persist/py.typed", "persist/_migrations/env.py", "persist/_migrations/script.py.mako"} <= names
    assert {f"persist/_migrations/versions/{path.name}" for path in revision_files()} <= names
    assert {name.partition("/")[0] for name in names} == {"persist", f"agent_persist-{__version__}.dist-info"}
    assert [name for name in names if "test_" in name or "/tests" in name or "__pycache__" in name] == []
    assert "persist/_migrations/__init__.py" not in names
    assert f"Version: {__version__}\n" in metadata
    assert "\n# persist\n" in metadata
    assert "](docs/" not in metadata  # a link that would lead nowhere


def test_the_sdist_can_build_it(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"pyproject.toml", "alembic.ini", "alembic/env.py", "persist/__init__.py", "LICENSE", "README.md"} <= names
    assert [name for name in names if name.startswith(("tests", "examples", ".ci"))] == []


def test_persist_is_imported_from_the_wheel(run: Callable[..., str], python: Path) -> None:
    code = "import persist, persist.schema.migrate as m; print(persist.__file__); print(m.script_dir())"
    found = run("python", "-c", code).splitlines()
    root = str(python.parents[1])
    assert all(path.startswith(root) for path in found)
    assert found[1].endswith("_migrations")


def test_a_store_opens(run: Callable[..., str], elsewhere: Path) -> None:
    code = """
import persist
with persist.Store.open("sqlite:///state.db") as store, store.begin() as tx:
    print(tx.chat.sessions.create(agent="build", model={}).id)
"""
    assert run("python", "-c", code).startswith("ses_")
    assert Place(f"sqlite:///{elsewhere}/state.db").ask(f"SELECT * FROM {VERSION_TABLE}") == [(HEAD,)]


def test_upgrade_from_python(run: Callable[..., str], empty_database: Callable[[], Place], migrated: Place) -> None:
    place = empty_database()
    code = "import sys, persist; persist.upgrade(sys.argv[1]); persist.check(sys.argv[1]); print(persist.current(sys.argv[1]))"
    assert run("python", "-c", code, place.url).strip() == HEAD
    assert place.catalog() ^ migrated.catalog() == set()


def test_upgrade_from_the_command_line(run: Callable[..., str], empty_database: Callable[[], Place], migrated: Place) -> None:
    place = empty_database()
    run("persist", "upgrade", "--url", place.url)
    assert place.catalog() ^ migrated.catalog() == set()


def test_upgrade_by_a_hosts_own_alembic(
    run: Callable[..., str], elsewhere: Path, empty_database: Callable[[], Place], migrated: Place
) -> None:
    place = empty_database()
    (elsewhere / "alembic.ini").write_text("[alembic]\nscript_location = persist:_migrations\npath_separator = os\n")
    run("python", "-W", "error", "-m", "alembic", "-x", f"url={place.url}", "upgrade", "head")
    assert place.catalog() ^ migrated.catalog() == set()
    assert place.rows() == migrated.rows()


def test_upgrade_by_the_ini_that_persist_prints(run: Callable[..., str], elsewhere: Path, empty_file: Place) -> None:
    ini = run("python", "-c", "from persist.schema.migrate import ini_text; print(ini_text())")
    assert "script_location = persist:_migrations\n" in ini
    (elsewhere / "alembic.ini").write_text(ini)
    run("python", "-m", "alembic", "-x", f"url={empty_file.url}", "upgrade", "head")
    assert empty_file.ask(f"SELECT * FROM {VERSION_TABLE}") == [(HEAD,)]
