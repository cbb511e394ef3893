"""A server of pages as a process of its own: chunks on their way to a browser, viewers of silent chats, a first visit."""

import asyncio
import gzip
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks import following
from benchmarks.goals import reached
from benchmarks.measure import Row
from persist import Store

VIEWERS = 100
IDLE_SECONDS = 20.0
_SETTLED = 3.0
_LATEST = 60.0
_MIB = 2**20


def rows(url: str, schema: str | None, where: str) -> Iterator[Row]:
    """Over a store that is filled."""
    suffix = "-postgres" if where else ""
    with _server(url, schema) as (process, port):
        if not where:
            size, detail = _first_visit(port)
            yield reached("pages-first", size, detail)
        yield asyncio.run(_chunks(url, schema, port, suffix))
        yield from asyncio.run(_idle(process.pid, port, suffix))


@contextmanager
def _server(url: str, schema: str | None) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """`persist ui` on a free port."""
    command = [sys.executable, "-u", "-m", "persist", "ui", "--url", url, "--port", "0"]
    command += [] if schema is None else ["--schema", schema]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = re.search(r"http://127\.0\.0\.1:(\d+)/", process.stdout.readline())
            assert address is not None
            yield process, int(address[1])
        finally:
            process.terminate()


def _first_visit(port: int) -> tuple[float, str]:
    """Kilobytes of the first page with all that it names, as they were sent to a browser that takes gzip."""
    sent, plain = _sent(port, "/")
    total, whole = len(sent), len(plain)
    named = re.findall(rb'(?:href|src)="([^"]+/static/[^"]+|/static/[^"]+)"', plain)
    for path in dict.fromkeys(named):
        sent, plain = _sent(port, path.decode())
        total, whole = total + len(sent), whole + len(plain)
    return total / 1000, f"the page and {len(set(named))} files; {whole / 1000:.0f} KB before they are compressed"


def _sent(port: int, path: str) -> tuple[bytes, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_LATEST)
    connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status != 200:
        raise AssertionError(f"{path} answers with {answer.status}")
    return body, gzip.decompress(body) if answer.getheader("Content-Encoding") == "gzip" else body


async def _listen(port: int, chat: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /chat/{chat}/live HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: text/event-stream\r\n\r\n".encode())
    await writer.drain()
    status = await reader.readline()
    if b" 200 " not in status:
        raise AssertionError(f"the live stream of a chat answers with {status!r}")
    return reader, writer


async def _chunks(url: str, schema: str | None, port: int, suffix: str) -> Row:
    """A third process feeds a chunk now and then, with the time just before in it; this one notes when the event came."""
    with Store.open(url, schema=schema) as store:
        session = store.chat.sessions.create(agent="bench", model={})
    reader, writer = await _listen(port, session.id)
    late = list[float]()
    with subprocess.Popen([sys.executable, "-m", "benchmarks.following", url, session.id]) as recorder:
        async with asyncio.timeout(_LATEST):
            while len(late) < following.CHUNKS and (line := await reader.readline()):
                came = time.monotonic_ns()
                if line.startswith(b"data: "):
                    told = json.loads(line.removeprefix(b"data: "))
                    late += [(came - int(fed)) / 1e6 for fed in told.get("delta", "").split()]
        recorder.wait()
    writer.close()
    spread = statistics.quantiles(late, n=100)
    return reached(f"pages-chunk{suffix}", spread[98], f"{len(late)} chunks, p50 {spread[49]:.1f} ms, at most {max(late):.1f} ms")


async def _idle(pid: int, port: int, suffix: str) -> list[Row]:
    """What the server uses while many look at chats in which nobody speaks, a chat each."""
    _sent(port, "/chat")
    before = _resident(pid)
    viewers = [await _listen(port, f"ses_{number:026}") for number in range(VIEWERS)]
    await asyncio.sleep(_SETTLED)
    used, started = _used(pid), time.monotonic()
    await asyncio.sleep(IDLE_SECONDS)
    share = (_used(pid) - used) / (time.monotonic() - started) * 100
    after = _resident(pid)
    for _, writer in viewers:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    detail = f"the process has {after:.0f} MB with them, {before:.0f} MB before"
    return [
        reached(f"pages-idle{suffix}", share, f"over {IDLE_SECONDS:.0f} s, of the server's process"),
        reached(f"pages-memory{suffix}", after - before, detail),
    ]


def _used(pid: int) -> float:
    """Seconds of processor time of a process. Linux alone has this file."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> float:
    """Resident memory of a process in MB."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE") / _MIB
