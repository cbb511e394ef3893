"""A newcomer walks the README from top to bottom, line by line, in a folder with nothing else in it and an empty home.

The commands are the page's own, run by bash; only what would install is not: the environment that `make demo` makes stands ready,
`make test` is asked what it would do, and `pip install` is checked for names that exist.
"""

import re
import runpy
import shutil
import signal
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

import hatch_build
from tests.cases import each
from tests.markdown import ROOT
from tests.walking import Step, script, steps, told
from tests.walks.newcomer import newcomer_folder, run, told_in

CLONE = ("examples", "pyproject.toml", "Makefile", "README.md")
CRASH = "python examples/harness.py start --crash after-plan"
_STAND_INS = """
python3() { if [ "$1 $2" = "-m venv" ]; then test -d .venv; else command python3 "$@"; fi; }
make() { if [ "$1" = test ]; then command make --dry-run test > test.plan; else command make "$@"; fi; }
pip() { [ "$1" = install ] && [ $# = 2 ] && echo "$2" >> installed.txt; }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder but for the environment, which stands ready, and for a clone, as far as the page names it."""
    folder = newcomer_folder(tmp_path)
    clone = folder / "persist"
    clone.mkdir()
    for name in CLONE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules", "dist"))
        else:
            shutil.copyfile(ROOT / name, clone / name)
    (clone / ".venv").symlink_to(folder / ".venv")
    (clone / ".venv" / ".ready-demo").touch()
    return folder


def test_every_line_works_in_order(folder: Path) -> None:
    walk = steps((folder / "persist" / "README.md").read_text(encoding="utf-8"))
    done = run(script(walk, _STAND_INS), folder)
    said = done.stdout + done.stderr
    walked = told(walk, done.stdout, told_in(folder))
    expected = {CRASH: 128 + signal.SIGKILL}
    assert {line: status for status, line in walked.statuses if status != expected.get(line, 0)} == {}, said
    assert walked.differences == [], said
    assert len(walked.statuses) >= 20
    assert [line for _, line in walked.statuses if line.startswith("make")] == ["make demo", "make test"]
    assert "Traceback" not in said
    assert (folder / "installed.txt").read_text(encoding="utf-8").split() == ["agent-persist"]
    assert "pytest" in (folder / "persist" / "test.plan").read_text(encoding="utf-8")
    assert "Approved review; run " in said
    assert not any((folder.parent / "home").iterdir())
    once_more(folder, walk)


def once_more(folder: Path, walk: list[Step]) -> None:
    """A reader who comes back to the same folder, and runs the block of commands a third time; the demo need not run again."""
    told_in(folder).unlink()
    again = [
        replace(
            step,
            text=re.sub("^make .*\n", "", step.text, flags=re.MULTILINE),
            printed=[] if "make" in step.text else step.printed,
        )
        for step in walk
    ]
    assert "persist record" in again[-1].text
    done = run(script([*again, again[-1]], _STAND_INS), folder)
    walked = told(again, done.stdout, told_in(folder))
    assert {line for status, line in walked.statuses if status} == {CRASH}, done.stdout + done.stderr
    assert walked.differences == [], done.stdout + done.stderr


def test_a_walk_finds_what_a_page_says_wrongly(tmp_path: Path) -> None:
    """A page whose output is wrong, and a command that fails."""
    page = (
        "```sh\necho one 1 two\nfalse  # fails\n```\n\n```text\none … two\n```\n\n```python\nprint(1)\n```\n\n```text\n2\n```\n"
    )
    walk = steps(page)
    (tmp_path / "folder").mkdir()
    done = run(script(walk, f'python() {{ "{sys.executable}" "$@"; }}\n'), tmp_path / "folder")
    walked = told(walk, done.stdout, told_in(tmp_path / "folder"))
    assert walked.statuses == [(0, "echo one 1 two"), (1, "false"), (0, "python")]
    assert walked.differences == [("2\n", "1\n")]


def test_what_is_installed_exists() -> None:
    """In the page and at the top of the examples: this project, and extras that it has."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *sorted((ROOT / "examples").glob("*.py")))]
    named = re.findall(r"pip install '?([\w.-]+)(?:\[([\w,-]+)\])?'?", "\n".join(texts))
    assert len(named) >= 4
    for name, extras in named:
        assert name in (".", project["name"]), name
        assert set(filter(None, extras.split(","))) <= project["optional-dependencies"].keys()


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_an_example_says_what_is_missing(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, with what installs it, where the first module of others is missing."""
    text = example.read_text(encoding="utf-8")
    (hint,) = re.findall(r"In a clone of persist: (pip install [^\"]+)\"", text)
    (block,) = re.findall(r"^ *try:\n(.*?)^ *except ImportError as missing:", text, re.MULTILINE | re.DOTALL)
    (missing, *_) = re.findall(r"^ +(?:from|import) (\w+)", block, re.MULTILINE)
    monkeypatch.setattr(sys, "argv", [str(example)])
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(example), run_name="__main__")
    said = str(ended.value)
    assert missing in said
    assert "\n" not in said
    assert said.endswith(hint)


@each("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_an_example_names_the_extras_that_it_needs(example: Path) -> None:
    text = example.read_text(encoding="utf-8")
    needed = {module.replace("_", "-") for module in re.findall(r"from persist\.integrations\.(\w+)", text)}
    named = re.search(r"pip install '\.\[([\w,-]+)\]'", text)
    extras = named[1].split(",") if named else []
    assert needed == {extra.removesuffix("-harness") for extra in extras}  # one integration, of which a part has an extra


def test_the_walk_has_an_interpreter_of_its_own(folder: Path) -> None:
    """What the page runs is this source, in the environment of the clone."""
    code = "import persist, sys; print(persist.__file__, sys.prefix, sep=chr(10))"
    command = [str(folder / ".venv" / "bin" / "python"), "-c", code]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.splitlines()
    assert found == [str(ROOT / "persist" / "__init__.py"), str(folder / ".venv")]
    assert sys.prefix != found[1]


def test_the_page_of_a_package_has_links_that_lead_somewhere() -> None:
    """Into the repository that a release names, or none to files."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    there = hatch_build.page(text, "https://code.example/persist", "v0.1.0")
    assert "(https://code.example/persist/blob/v0.1.0/docs/tutorial.md)" in there
    assert "(https://code.example/persist/raw/v0.1.0/docs/demo.svg)" in there
    nowhere = hatch_build.page(text, "", "v0.1.0")
    for page, kept in ((there, r"https://code\.example/"), (nowhere, r"https://")):
        assert [
            target for target in re.findall(r"\]\(([^)]+)\)", page) if not re.match(kept, target) and "://" not in target
        ] == []
    assert hatch_build.urls("", "v0.1.0") == {}
    assert hatch_build.urls("https://code.example/persist", "v0.1.0")["Repository"] == "https://code.example/persist"
