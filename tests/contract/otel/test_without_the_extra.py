"""Without OpenTelemetry everything else works, and what needs it says what to install."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.long

PROGRAM = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from persist import Store, otel

with Store.open("sqlite:///:memory:") as store:
    store.chat.sessions.create(agent="build", model={})
    print(store.metrics().transactions["committed"], len(list(otel.spans(store))))
for name in ("instrument", "SpanProcessor"):
    try:
        getattr(otel, name)
    except ImportError as error:
        print(error)
"""


def test_the_rest_works_without_it() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == [
        "1 1",
        "persist.otel.instrument needs OpenTelemetry: pip install 'agent-persist[otel]'.",
        "persist.otel.SpanProcessor needs the SDK of OpenTelemetry: pip install 'agent-persist[otel]' opentelemetry-sdk.",
    ]


def test_persist_alone_imports_nothing_of_it() -> None:
    program = "import persist, sys; persist.Store; print([name for name in sys.modules if name.startswith('opentelemetry')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
