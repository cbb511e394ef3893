"""House rules that no linter knows. A rule that must be broken somewhere says where, and why, in this file.

A rule about words that are rare parses the files alone that have them.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from persist.schema.metadata import metadata
from tests.architecture.sources import Source, sources, texts
from tests.cases import each

PACKAGE = sources("persist")
EVERYTHING = sources("persist", "tests", "alembic", "examples")

MAX_LINES = 500

DIALECT_WORDS = re.compile(r"sqlite|postgres|psycopg|jsonb|pragma", re.IGNORECASE)
MAY_NAME_DIALECTS = ("persist/db/", "persist/cli/", "persist/schema/adopt/")  # the last takes over SQLite files only
MAY_NAME_A_DIALECT = {
    "persist/settings.py": "documents what the settings are for",
    "persist/programs/models.py": "the published default of a column says it",
    "persist/programs/subagents/instructions.py": "writes commands for the command line of that name",
    "persist/schema/subagent_roles.py": "a server alone has roles, and they are made in its words",
    "persist/schema/tenant_roles.py": "the same",
    "persist/testing/__init__.py": "makes a new file for every test",
    "persist/ui/command.py": "a command, as those of persist/cli/",
}

LATE_IMPORTS = {
    ("persist/blobs/body_stores.py", "fsspec.core"): "an optional library",
    ("persist/db/dialects/postgres/dialect.py", "psycopg"): "an optional driver",
    ("persist/db/dialects/postgres/raw_writes.py", "psycopg"): "an optional driver",
    ("persist/db/dialects/postgres/wakeups.py", "psycopg"): "an optional driver",
    ("persist/db/dialects/postgres/urls.py", "psycopg"): "an optional driver",
    ("persist/db/dialects/sqlite/operations.py", "sqlite_vec"): "an optional library",
    ("persist/integrations/langgraph/strict.py", "numpy"): "an optional library; only a value that holds an array needs it",
    ("persist/conversations/vector_search.py", "numpy"): "an optional library, slow to import; only a search needs it",
    ("persist/workflows/fire_times.py", "cronsim"): "an optional library",
    ("persist/command.py", "persist.cli.root"): "slow to import; by then the command can be interrupted",
}
LATE_IN_COMMANDS = "persist/cli/"  # a command's module is imported when the command runs, so that `persist --help` is quick


def with_words(among: list[Source], words: str) -> Iterator[Source]:
    """Those whose text has the words somewhere, in code or not."""
    pattern = re.compile(words, re.IGNORECASE | re.MULTILINE)
    return (source for source in among if pattern.search(source.text))


def test_modules_are_small() -> None:
    lines = {source.name: len(source.text.splitlines()) for source in EVERYTHING}
    assert {name: count for name, count in lines.items() if count > MAX_LINES} == {}


def test_module_names_say_what_they_hold() -> None:
    vague = {"utils", "util", "common", "helpers", "helper", "misc", "shared", "base_utils"}
    assert [source.name for source in EVERYTHING if vague & set(Path(source.name).with_suffix("").parts)] == []


_DOCUMENTED = re.compile(r'(?:#.*\n|\s)*r?"""\s*[^\s"]')


def test_every_module_says_what_it_is_for() -> None:
    missing = [source.name for source in EVERYTHING if source.text.strip() and not _DOCUMENTED.match(source.text)]
    assert missing == []


_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def test_public_classes_and_functions_are_documented() -> None:
    missing = []
    for source in PACKAGE:
        for node in source.tree.body:
            if isinstance(node, _DEFINITIONS) and not node.name.startswith("_") and not ast.get_docstring(node):
                missing.append(f"{source.name}: {node.name}")
    assert missing == []


def test_dialect_words_stay_where_they_belong() -> None:
    found = []
    for source in with_words(PACKAGE, DIALECT_WORDS.pattern):
        if (
            not source.name.startswith(("persist/db/", "persist/cli/", "persist/schema/adopt/"))
            and source.name not in MAY_NAME_A_DIALECT
        ):
            found += [f"{source.name}:{line}: {text}" for line, text in source.code() if DIALECT_WORDS.search(text)]
    assert found == []


def test_dialects_are_told_apart_in_one_folder() -> None:
    """Two names may be compared with each other; which name it is only persist/db asks."""
    asked = []
    for source in with_words(PACKAGE, r"dialect\s*\.\s*name\b"):
        if source.name.startswith("persist/db/"):
            continue
        for node in source.nodes:
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
                if any(ast.unparse(side).endswith("dialect.name") for side in sides) and any(
                    isinstance(s, ast.Constant) for s in sides
                ):
                    asked.append(f"{source.name}:{node.lineno}")
    assert asked == []


def test_tables_are_never_named_in_text() -> None:
    """Their schema differs from database to database, and text cannot be mapped."""
    tables = re.compile(rf"\b(?:{'|'.join(table.name for table in metadata.sorted_tables)})\b")
    takes_text = {"text", "literal_column", "exec_driver_sql"}
    named = []
    for source in with_words(PACKAGE, rf"\b(?:{'|'.join(takes_text)})\b"):
        for node in source.nodes:
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in takes_text:
                words = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
                named += [f"{source.name}:{node.lineno}: {hit}" for hit in tables.findall(" ".join(words))]
    assert named == []


def _late_imports() -> set[tuple[str, str]]:
    late = set()
    for source in with_words(PACKAGE, r"^[ \t]+(?:from|import)\b|[;:][ \t]*(?:from|import)\b"):
        for function in source.nodes:
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for node in ast.walk(function):
                    if isinstance(node, ast.ImportFrom):
                        late.add((source.name, str(node.module)))
                    elif isinstance(node, ast.Import):
                        late |= {(source.name, alias.name) for alias in node.names}
    return late


def test_imports_are_at_the_top() -> None:
    assert {late for late in _late_imports() if not late[0].startswith(LATE_IN_COMMANDS)} == set(LATE_IMPORTS)


ASKS_THE_SYSTEM = ("persist/db/concurrency/windows_processes.py", "ctypes")
"""It hands numbers to four functions of kernel32, and the number of a process that it reads is checked before."""

STARTS_ITSELF = ("persist/tenants/placing.py", "subprocess")
"""It starts this interpreter with a module of persist; what that works on reaches it as data, by its standard input."""


RUNS_AGAIN = ("persist/lazy_imports.py", "exec")
"""The code of a package, which Python has just run, is run once more where its imports are only noted."""


def test_nothing_runs_what_it_reads() -> None:
    """Neither a value of the database nor a file is ever taken for a program, an object or a command."""
    modules = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "code", "subprocess", "ctypes", "xml", "yaml", "zipfile"}
    calls = {"eval", "exec", "compile", "__import__", "os.system", "os.popen"}
    found = []
    for source in with_words(PACKAGE, rf"\b(?:{'|'.join(modules)}|eval|exec|compile|__import__|system|popen)\b"):
        for node in source.nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [str(node.module)]
                names = [name for name in names if (source.name, name.partition(".")[0]) not in (ASKS_THE_SYSTEM, STARTS_ITSELF)]
                found += [f"{source.name}:{node.lineno}: {name}" for name in names if name.partition(".")[0] in modules]
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) in calls
                and (source.name, ast.unparse(node.func)) != RUNS_AGAIN
            ):
                found.append(f"{source.name}:{node.lineno}: {ast.unparse(node.func)}")
    assert found == []


PRIVATE_NAMES_OF_OTHERS = {
    "_asdict": "of named tuples, documented",
    "_make": "of named tuples, documented",
    "_replace": "of named tuples, documented",
    "_exit": "os._exit, documented",
    "_getframe": "sys._getframe, documented",
    "_value2member_map_": "of enums; the tests of every vocabulary use it",
    "_DeltaSnapshot": "of LangGraph; the tests of the integration use it",
    "_event_store": "of MCP's transport; the tests of the integration use it",
    "_allowed": "of LangGraph's serializer; the tests of the integration use it",
    "_storage_update_marker": "of Google ADK's Session; the tests of the integration use it",
    "_get_running_loop": "of asyncio, exported by it for libraries: the public function raises an error where no loop runs",
    "_select_names": "of SQLAlchemy's INSERT … FROM SELECT; the tests of batches on Postgres use it",
}
"""The private names that a module may use of another library. Those of SQLAlchemy are in persist/db/sqlalchemy_private.py."""


def test_private_names_of_libraries_are_in_one_place() -> None:
    ours = {name for source in PACKAGE for name in _defined(source.nodes)}
    used = {source.name: set(_private_names_used(source.nodes)) for source in PACKAGE}
    of_sqlalchemy = used.pop("persist/db/sqlalchemy_private.py")
    allowed = (ours - of_sqlalchemy) | set(PRIVATE_NAMES_OF_OTHERS)
    assert {name: names - allowed for name, names in used.items() if names - allowed} == {}
    assert len(of_sqlalchemy) > 4


def test_no_module_imports_a_private_name_of_another() -> None:
    found = []
    for source in with_words(EVERYTHING, r"\bimport\b[^\n]*[ ,(]_[^_]|^\s+_\w+(?: as \w+)?,"):
        for node in source.nodes:
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith(("persist", "tests")):
                found += [f"{source.name}: {alias.name}" for alias in node.names if re.match(r"_[^_]", alias.name)]
    assert found == []


def _defined(nodes: list[ast.AST]) -> Iterator[str]:
    """The names that a module gives to functions, variables, fields and attributes."""
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


def _private_names_used(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                continue
            case ast.Attribute(attr=name):
                names = [name]
            case ast.Call(func=ast.Name(id="getattr" | "setattr" | "hasattr"), args=[_, ast.Constant(value=str(name)), *_]):
                names = [name]
            case ast.ImportFrom(module=str(module)) if not module.startswith(("persist", "__future__")):
                names = [*module.split("."), *(alias.name for alias in node.names)]
            case _:
                continue
        yield from (name for name in names if name.startswith("_") and not name.startswith("__"))


LOGS_STATEMENTS = "persist/db/observation.py"
"""Its logger, `persist.statements`, is one to switch on by itself."""
QUIETS_ENGINES = "persist/db/dialects/connections.py"
"""It keeps rows out of a logger of SQLAlchemy, and logs nothing."""


def test_there_is_one_logger_and_nothing_prints() -> None:
    wrong = []
    for source in with_words(PACKAGE, r"getLogger|logging\s*\.|\bprint\b"):
        for node in source.nodes:
            if isinstance(node, ast.Call):
                called, given = ast.unparse(node.func), [ast.unparse(argument) for argument in node.args]
                another = (
                    called.endswith("getLogger")
                    and given != ["'persist'"]
                    and source.name not in (LOGS_STATEMENTS, QUIETS_ENGINES)
                )
                root = re.fullmatch(r"logging\.(debug|info|warning|error|exception|critical|log|basicConfig)", called)
                if another or root or called == "print":
                    wrong.append(f"{source.name}:{node.lineno}: {called}")
    assert wrong == []


_EXCEPTION = re.compile(r"#\s*(?:type:\s*ignore|noqa|pragma:\s*no\s*cover|fmt:\s*(?:off|skip)|mypy:|ruff:)", re.IGNORECASE)
_WITH_REASON = re.compile(r"#\s*(?:type:\s*ignore\[[\w, -]+\]|noqa:\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*)\s+[#-]\s*\S.{5,}")
_OUR_VERB = "executions.skip"  # of a workflow's phase
_SKIPS = {"skip", "skipif", "xfail", "importorskip", "skipTest"}


def test_every_silenced_check_says_why() -> None:
    silent = []
    for source in with_words(EVERYTHING, _EXCEPTION.pattern):
        for line, text in source.comments():
            if _EXCEPTION.match(text) and not _WITH_REASON.match(text):
                silent.append(f"{source.name}:{line}: {text}")
    assert silent == []


def test_no_test_is_skipped() -> None:
    """Only a missing server may skip, and only where nobody asked for one: the fixture in conftest.py does."""
    skips = []
    for source in with_words(sources("tests"), rf"\.\s*(?:{'|'.join(_SKIPS)})\b"):
        if source.name != "tests/conftest.py":
            nodes = [node for node in source.nodes if isinstance(node, ast.Attribute) and node.attr in _SKIPS]
            named = [(node.lineno, ast.unparse(node)) for node in nodes]
            skips += [f"{source.name}:{line}: {name}" for line, name in named if not name.endswith(_OUR_VERB)]
    assert skips == []


def _joined(*pieces: str) -> str:
    return "".join(pieces)  # in pieces, or this file would be the one that says it


FORBIDDEN = {
    "a package index": [
        _joined("py", "pi.org"),
        _joined("pythonhosted", ".org"),
        _joined("registry.", "npmjs"),
        _joined("index", "-url"),
    ],
    "a folder beside the repository": [_joined("..", "/", "shared"), _joined("/work", "/main"), _joined("/work", "/shared")],
    "a machine's own paths": [_joined("/tmp", "/lab"), _joined("/root", "/")],
}


@each("what", FORBIDDEN)
def test_no_file_names(what: str) -> None:
    found = [(name, word) for name, text in texts() for word in FORBIDDEN[what] if word in text.lower()]
    assert found == []


def test_there_are_files_to_look_at() -> None:
    names = {name for name, _ in texts()}
    assert {"pyproject.toml", ".ci/run", "persist/__init__.py", "tests/architecture/test_sources.py", "alembic.ini"} <= names
