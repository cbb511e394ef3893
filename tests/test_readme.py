"""A newcomer walks the README from top to bottom, line by line, in a folder with nothing else in it and an empty home.

The commands are the page's own, run by bash; only what would install is not: the environment that `make demo` makes stands ready,
`make test` is asked what it would do, and `pip install` is checked for names that exist.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest
import sqlalchemy

from tests.markdown import ROOT

CLONE = ("examples", "pyproject.toml", "Makefile", "README.md")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_STAND_INS = """
make() { if [ "$1" = test ]; then command make --dry-run test > test.plan; else command make "$@"; fi; }
pip() { [ "$1" = install ] && [ $# = 2 ] && echo "$2" >> installed.txt; }
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What a clone is, as far as the page names it, and the environment of `make demo`."""
    folder = tmp_path / "clone"
    (tmp_path / "home").mkdir()
    folder.mkdir()
    for name in CLONE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules", "dist"))
        else:
            shutil.copyfile(ROOT / name, folder / name)
    venv.create(folder / ".venv", symlinks=True)
    (packages,) = (folder / ".venv" / "lib").glob("python*/site-packages")
    dependencies = Path(sqlalchemy.__file__).parents[1]
    (packages / "persist.pth").write_text(f"{ROOT}\n{dependencies}\n", encoding="utf-8")
    command = folder / ".venv" / "bin" / "persist"
    # a shell finds the interpreter where the folder's name has a blank, too
    start = "import sys; sys.argv[0] = 'persist'; from persist.cli import main; main()"
    command.write_text(f'#!/bin/sh\nexec "$(dirname "$0")/python" -c "{start}" "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    (folder / ".venv" / ".ready-demo").touch()
    return folder


def walk(page: str) -> str:
    """The page as one script: shell lines as they are, and neighbouring Python blocks as one session of the interpreter."""
    script, last = [_STAND_INS], ""
    for kind, text in _BLOCK.findall(page):
        assert kind in ("sh", "python"), f"nobody could tell how to run a block of kind {kind!r}"
        if kind == "python" and last == "python":
            script[-1] = script[-1].removesuffix("PYTHON\ntell $? python\n") + text + "PYTHON\ntell $? python\n"
        elif kind == "python":
            script.append(f"python - <<'PYTHON'\n{text}PYTHON\ntell $? python\n")
        else:
            lines = [line for line in text.splitlines() if line.strip()]
            script += [f"{line}\ntell $? {_quoted(line)}\n" for line in lines]
        last = kind
    return 'tell() { printf \'%s\\t%s\\n\' "$1" "$2" >> told.txt; }\n' + "".join(script)


def _quoted(line: str) -> str:
    return "'" + line.partition("#")[0].strip().replace("'", "'\\''") + "'"


def test_every_line_works_in_order(clone: Path) -> None:
    page = (clone / "README.md").read_text(encoding="utf-8")
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(clone.parent / "home"), "LANG": "C.UTF-8"}
    environment |= {"TMPDIR": os.environ["TMPDIR"]} if "TMPDIR" in os.environ else {}
    done = subprocess.run(
        ["bash", "-c", walk(page)], cwd=clone, env=environment, capture_output=True, text=True, encoding="utf-8", timeout=300
    )
    said = done.stdout + done.stderr
    told = [line.split("\t") for line in (clone / "told.txt").read_text(encoding="utf-8").splitlines()]
    crash = "python examples/harness.py start --crash after-plan"
    expected = {crash: str(128 + signal.SIGKILL)}
    assert {line: status for status, line in told if status != expected.get(line, "0")} == {}, said
    assert len(told) >= 20
    assert [line for _, line in told if line.startswith("make")] == ["make demo", "make test"]
    assert "Traceback" not in said
    assert "pytest" in (clone / "test.plan").read_text(encoding="utf-8")

    assert "not a word missing, none there twice: yes" in said
    assert "review: waiting; answer with approve or reject\n" in said
    assert "2 messages in the fork\n1 gate waits for an answer\n" in said
    assert "Approved review; run " in said
    assert not any((clone.parent / "home").iterdir())


def test_what_is_installed_exists() -> None:
    """In the page and at the top of the examples: this project, and extras that it has."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *sorted((ROOT / "examples").glob("*.py")))]
    named = re.findall(r"pip install '?([\w.-]+)(?:\[([\w,-]+)\])?'?", "\n".join(texts))
    assert len(named) >= 4
    for name, extras in named:
        assert name in (".", project["name"])
        assert set(filter(None, extras.split(","))) <= project["optional-dependencies"].keys()


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_an_example_names_the_extras_that_it_needs(example: Path) -> None:
    text = example.read_text(encoding="utf-8")
    needed = {module.replace("_", "-") for module in re.findall(r"from persist\.integrations\.(\w+)", text)}
    named = re.search(r"pip install '\.\[([\w,-]+)\]'", text)
    extras = named[1].split(",") if named else []
    assert needed == {extra.removesuffix("-harness") for extra in extras}  # one integration, of which a part has an extra


def test_the_walk_has_an_interpreter_of_its_own(clone: Path) -> None:
    """What the page runs is this source, in the environment of the clone."""
    code = "import persist, sys; print(persist.__file__, sys.prefix, sep=chr(10))"
    command = [str(clone / ".venv" / "bin" / "python"), "-c", code]
    found = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=True).stdout.splitlines()
    assert found == [str(ROOT / "persist" / "__init__.py"), str(clone / ".venv")]
    assert sys.prefix != found[1]
