"""Celery as a host: a worker whose pool forks, with the store that docs/how-to/celery-and-fork.md opens in each process."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from persist import Store
from tests.markdown import DOCS, ROOT

DEADLINE = 90.0
QUEUE = """broker="filesystem://", set_as_current=True)
app.conf.update(broker_transport_options={"data_folder_in": "queue", "data_folder_out": "queue", "control_folder": "control"}"""


@pytest.mark.long
def test_tasks_of_a_forked_pool_write_to_the_store(tmp_path: Path) -> None:
    """As the page has it, but for the broker, which here is a folder."""
    page = (DOCS / "how-to" / "celery-and-fork.md").read_text(encoding="utf-8")
    (module,) = re.findall(r"^```python\n(from celery import .*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert module.count('broker="memory://"') == 1
    text = "from persist import Store\n" + module.replace('broker="memory://"', QUEUE)
    (tmp_path / "tasks.py").write_text(text, encoding="utf-8")
    for folder in ("queue", "control"):
        (tmp_path / folder).mkdir()
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    with Store.open(f"sqlite:///{(tmp_path / 'tasks.db').as_posix()}") as store:
        session = store.chat.sessions.create(agent="build", model={})
    send = "import sys, tasks; [tasks.answer.delay(sys.argv[1], 'hi', id) for id in ('one', 'two', 'one')]"
    subprocess.run([sys.executable, "-c", send, session.id], cwd=tmp_path, env=environment, check=True, timeout=DEADLINE)

    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "tasks",
        "worker",
        "--pool",
        "prefork",
        "--concurrency",
        "2",
        "--loglevel",
        "INFO",
    ]
    log = tmp_path / "worker.log"
    with log.open("w") as said, subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=said, stderr=said) as worker:
        try:
            end = time.monotonic() + DEADLINE
            while log.read_text(encoding="utf-8").count("succeeded") < 3:
                assert worker.poll() is None, log.read_text(encoding="utf-8")
                assert time.monotonic() < end, log.read_text(encoding="utf-8")
                time.sleep(0.2)
        finally:
            worker.terminate()
    text = log.read_text(encoding="utf-8")
    assert worker.returncode == 0, text
    assert "Traceback" not in text
    with Store.open(f"sqlite:///{(tmp_path / 'tasks.db').as_posix()}") as store:
        assert sorted(message["id"] for message in store.chat.messages.list(session.id)) == ["one", "two"]
