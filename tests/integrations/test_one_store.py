"""Four frameworks share a database: killed within each of them, they go on, and the sums have all that was paid for."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from persist.cli import main
from tests.subprocesses import ROOT

KILLED = """\
ended by -9
openai-agents: All three are worth it.
langgraph: Lisbon is booked.
ended by -9
langgraph: Porto is booked.
langgraph: Faro is booked.
pydantic-ai: Come to Portugal!
ended by -9
pydantic-ai: Venham a Portugal!
ended by -9
"""
FINISHED = """\
mcp: a page about Lisbon
mcp: a page about Porto
mcp: a page about Faro
mcp: That was all.
openai-agents    570 tokens in    50 out  $0.002460
langgraph        200 tokens in    20 out  $0.000900
pydantic-ai      140 tokens in   120 out  $0.002220
mcp               40 tokens in   400 out  $0.006120
all              950 tokens in   590 out  $0.011700
"""


NAMES = {
    "a2a": ("a2a", "the A2A SDK", "a2a"),
    "claude_agent_sdk": ("claude_agent_sdk", "the Claude Agent SDK", "claude-agent-sdk"),
    "google_adk": ("google.adk", "Google ADK", "google-adk"),
    "langgraph": ("langgraph", "LangGraph", "langgraph"),
    "mcp": ("mcp", "the MCP SDK", "mcp"),
    "openai_agents": ("agents", "the OpenAI Agents SDK", "openai-agents"),
}
"""By module: what it imports, and what it calls this framework and the extra that installs it."""


@pytest.mark.parametrize("module", NAMES)
def test_a_missing_framework_is_named_in_one_sentence(module: str) -> None:
    framework, name, extra = NAMES[module]
    lines = [f"import sys; sys.modules[{framework!r}] = None", "try:", f" import persist.integrations.{module}"]
    code = "\n".join([*lines, "except ImportError as error:", " print(error)"])
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == f"persist.integrations.{module} needs {name}: pip install 'agent-persist[{extra}]'.\n"


@pytest.mark.long
def test_the_example_survives_a_kill_within_each_framework(sqlite_url: str, postgres_url: str) -> None:
    urls = (sqlite_url, postgres_url)
    kills = [f"{url} --crash-after {calls}" for url in urls for calls in (2, 5, 4, 2)]
    line = [sys.executable, "-m", "tests.integrations.forked_runs", "examples/one_store.py", *kills, *[" ".join(urls)] * 2]
    run = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert (run.returncode, run.stderr, run.stdout) == (0, "", KILLED * 2 + (FINISHED * 2 + "ended by 0\n") * 2)
    for url in urls:
        told = CliRunner().invoke(main, ["telemetry", "usage", "--instance", "mcp", "--url", url])
        assert (told.exit_code, "400" in told.output) == (0, True), told.output
        for domain in ("chat", "checkpoints", "histories"):
            listed = CliRunner().invoke(main, ["ls", domain, "-q", "--url", url])
            assert (listed.exit_code, listed.output) == (0, "trip\n"), (domain, listed.output)
        assert len(CliRunner().invoke(main, ["ls", "replay_streams", "-q", "--url", url]).output.split()) == 2
