"""Real processes on one log: at the same time, and killed."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from persist.sessionlog import SessionLogWriter, read_session_log, session_log_path
from persist.sessionlog.reader import read_line
from tests.markdown import ROOT


def start(home: Path, name: str, *batches: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("worker.py")), str(home), name, *batches], env=environment
    )


def test_two_processes_interleave_whole_batches(home: Path) -> None:
    processes = [start(home, name, "300") for name in ("a", "b")]
    assert [process.wait(60) for process in processes] == [0, 0]
    whole = session_log_path(home, "-x", "s1").read_bytes()
    assert whole.endswith(b"\n")
    said = [json.loads(line)["message"]["content"][0]["text"] for line in whole.split(b"\n")[:-1] if line]
    assert len(said) == 2 * 300 * 5
    heads = [tuple(part.split(" ")[:3]) for part in said]
    for name in ("a", "b"):
        assert [head[1:] for head in heads if head[0] == name] == [(str(n), str(line)) for n in range(300) for line in range(5)]
    for at in range(0, len(heads), 5):
        assert len({head[:2] for head in heads[at : at + 5]}) == 1, "a batch was torn apart"


def test_a_killed_writer_costs_at_most_its_last_line(home: Path) -> None:
    path = session_log_path(home, "-x", "s1")
    for round in range(3):
        process = start(home, f"round{round}")
        try:
            deadline = time.monotonic() + 30
            size = path.stat().st_size if path.exists() else 0
            while (not path.exists() or path.stat().st_size < size + 100_000) and time.monotonic() < deadline:
                time.sleep(0.005)
        finally:
            process.kill()
            process.wait(30)
        before = path.read_bytes()
        assert len(before) >= size + 100_000
        SessionLogWriter(home, "-x", initial_prompt=f"after {round}", strict=True).finalize_with_fallback("s1")
        assert path.read_bytes().startswith(before)
        whole = sum(len(read_line(line).records) for line in before.split(b"\n"))
        said = [entry.msg["content"] for entry in read_session_log(path)]
        assert said.count(f"after {round}") == 1
        assert len(said) == whole + 1 - round  # the result line of each round says nothing
