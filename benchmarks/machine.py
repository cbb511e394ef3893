"""What figures were measured with: the machine, the versions and the settings; no names and no paths."""

import os
import platform
import re
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psycopg

from benchmarks.floors import PRAGMAS

PACKAGES = ("agent-persist", "sqlalchemy", "pydantic", "orjson", "psycopg", "numpy", "sqlite-vec")
PEERS = (
    "openai-agents",
    "google-adk",
    "langgraph",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
    "procrastinate",
    "dbos",
)
SETTINGS = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers")


def described(url: str | None) -> list[str]:
    """A line each."""
    system = platform.system()
    with suppress(OSError):
        system = f"{platform.freedesktop_os_release()['PRETTY_NAME']}, Linux {platform.release().partition('-')[0]}"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    lines = [
        f"Machine: {_processor()}, {cores} cores, {memory:.0f} GiB of memory; {system};"
        f" load {os.getloadavg()[0]:.1f} when the run began",
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {_versions(PACKAGES)}",
        f"SQLite: {', '.join(PRAGMAS)}; persist with its defaults",
    ]
    if peers := _versions(PEERS):
        lines.append(f"Peers: {peers}")
    if url is not None:
        lines.append(_server(url))
    return lines


def _versions(packages: Sequence[str]) -> str:
    found = []
    for package in packages:
        with suppress(PackageNotFoundError):
            found.append(f"{package} {version(package)}")
    return ", ".join(found)


def _processor() -> str:
    with suppress(OSError):
        if named := re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE):
            return named[1]
    return platform.processor() or platform.machine()


def _server(url: str) -> str:
    with psycopg.connect(url) as raw:

        def shown(name: str) -> str:
            (value,) = raw.execute("SELECT current_setting(%s)", (name,)).fetchall()[0]
            return str(value)

        settings = ", ".join(f"{name}={shown(name)}" for name in SETTINGS)
        number = shown("server_version").split()[0]
        socket = "a Unix socket" if raw.info.host.startswith("/") else "TCP"
    return f"PostgreSQL {number} over {socket}: {settings}"
