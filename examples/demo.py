"""A streamed answer survives kill -9: `make demo`, or `python examples/demo.py [--url postgresql://…]`.

A child process records examples/answer.sse, an AI SDK v6 UI message stream, chunk by chunk, and tells us through a pipe of every
chunk that `feed()` acknowledged. In the middle of a sentence it is killed with SIGKILL. What the file then holds must be exactly
what those chunks make; a new recorder goes on with the same message, and in the end not a word is missing or there twice.

What going on means here: the new recorder is told of the message by `start`, and of the half sentence by a `text-start` with the
id of the open part, and goes on with both. (A harness that can only ask its provider again would feed the interrupted step from
its `start-step`; tool calls that were cut off become errors first, by `repair_interrupted`, for the model to see what happened.)
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

try:
    import persist
    from persist.chat.reducer import reduce
except ImportError as missing:
    raise SystemExit(f"{missing}. In a clone of persist: pip install .") from None

STREAM = Path(__file__).with_name("answer.sse")
KILL_AFTER = 320  # chunks; in the middle of the answer's text
WIDTH = 76  # of what is shown of a part
USAGE = [  # tokens and price of each step, as a host knows them from its provider when the step is over
    {"input_tokens": 1_200, "output_tokens": 64, "reasoning_tokens": 28, "cost_usd": 0.0046},
    {"input_tokens": 1_310, "output_tokens": 31, "reasoning_tokens": 10, "cache_read_tokens": 1_100, "cost_usd": 0.0014},
    {"input_tokens": 1_420, "output_tokens": 251, "cache_read_tokens": 1_250, "cost_usd": 0.0046},
]

Chunk = dict[str, Any]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--url", help="sqlite:///FILE or postgresql://…; without it a new SQLite file")
    options.add_argument("--child", metavar="SESSION", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.child:
        return child(given.url, given.child)
    url = given.url or f"sqlite:///{(Path(tempfile.mkdtemp(prefix='persist-demo-')) / 'state.db').as_posix()}"
    return demo(url)


def read_stream() -> list[Chunk]:
    """The chunks. The stream's own message id is left out, so that the demo can run twice on one database."""
    frames = STREAM.read_text(encoding="utf-8").split("\n\n")
    chunks = [json.loads(frame.removeprefix("data: ")) for frame in frames if frame.startswith("data: {")]
    chunks[0].pop("messageId", None)
    return chunks


def child(url: str, session_id: str) -> int:
    """Record, acknowledge every chunk, and wait to be killed."""
    step = 0
    with persist.Store.open(url) as store, store.record(session_id) as recorder:
        for number, chunk in enumerate(read_stream()[:KILL_AFTER], start=1):
            recorder.feed(chunk)
            if chunk["type"] == "finish-step":
                recorder.step_usage(step, **USAGE[step])
                step += 1
            print(number, flush=True)  # durable: feed() has returned
        time.sleep(60)  # the model thinks; nobody says goodbye
    return 1


def demo(url: str) -> int:
    chunks = read_stream()
    postgres = not url.startswith("sqlite")
    if postgres:
        persist.upgrade(url)

    title("1. A session, and a question")
    with persist.Store.open(url) as store, store.begin() as tx:
        model = {"provider_id": "anthropic", "model_id": "claude"}
        session_id = tx.chat.sessions.create(agent="demo", model=model, metadata={"title": "The weather in Paris"}).id
        question = {"type": "text", "text": "What is the weather like in Paris this week?"}
        tx.chat.messages.append(session_id, role="user", parts=[question])
    print(f"   session {session_id}\n   user: {question['text']}")

    title(f"2. A child process records the answer, and is killed after chunk {KILL_AFTER} of {len(chunks)}")
    acknowledged, status = record_and_kill(url, session_id)
    print(f"   {acknowledged} chunks acknowledged; the child ended with status {status} (SIGKILL)")

    title("3. The database is opened again")
    with persist.Store.open(url) as store:
        with store.read() as tx:
            partial = tx.chat.messages.list(session_id)[-1]
        survived = same(partial, reduce(chunks[:acknowledged]))
        show(partial)
        print(f"   every acknowledged chunk is there, and nothing else: {yes(survived)}")

        title("4. A new recorder goes on with the same message")
        with store.begin() as tx:
            repaired = tx.chat.messages.repair_interrupted(session_id)
        rest = going_on(partial["id"], chunks, acknowledged)
        # No takeover: the owner of the turn was a process of this host, and that is gone.
        with store.record(session_id) as recorder:
            for chunk in rest:
                recorder.feed(chunk)
            for step, usage in enumerate(USAGE):  # steps 0 and 1 were counted before the crash; twice is once
                recorder.step_usage(step, **usage)
        print(f"   {repaired} tool calls had been cut off; {len(rest)} chunks fed, message {partial['id']} finished")

        title("5. The transcript, and what it cost")
        with store.read() as tx:
            final = tx.chat.messages.list(session_id)
            session = tx.chat.sessions.get(session_id)
    show(final[-1], whole=True)
    whole = same(final[-1], reduce(chunks)) and len(final) == 2
    names = ("input_tokens", "output_tokens", "reasoning_tokens")
    counted = session.total_tokens == sum(int(usage.get(name, 0)) for usage in USAGE for name in names)
    print(f"   not a word missing, none there twice: {yes(whole)}")
    print(
        f"   tokens {session.total_tokens:,}: input {session.prompt_tokens:,}, output {session.completion_tokens:,}, "
        f"reasoning {session.reasoning_tokens:,}, from the cache {session.cache_read:,}; ${session.cost_usd:.4f}"
    )
    print(f"   each step counted once: {yes(counted)}")

    title("6. It is all yours")
    if not postgres:
        print(f"   {url.removeprefix('sqlite:///')}")
    shown = url if not postgres else "…"
    print(f"   {command_line_tool()} show {session_id} --url {shown}")
    return 0 if survived and whole and counted else 1


def record_and_kill(url: str, session_id: str) -> tuple[int, int]:
    """How many chunks the child acknowledged before SIGKILL, and its exit status."""
    command = [sys.executable, __file__, "--url", url, "--child", session_id]
    acknowledged = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            acknowledged = int(line)
            if acknowledged == KILL_AFTER:
                process.kill()
                break
    return acknowledged, process.returncode


def going_on(message_id: str, chunks: list[Chunk], done: int) -> list[Chunk]:
    """The rest of the stream for a new recorder: a start that names the message, and one that names its open text."""
    cut = chunks[done - 1]
    assert cut["type"] == "text-delta", "the kill is meant to fall into the text"
    return [{"type": "start", "messageId": message_id}, {"type": "text-start", "id": cut["id"]}, *chunks[done:]]


def same(stored: Chunk, expected: Chunk) -> bool:
    """Whether the stored message has exactly those parts and, beside what the recorder adds, that metadata."""
    metadata = {name: value for name, value in stored.get("metadata", {}).items() if name != "usage"}
    return bool(stored["parts"] == expected["parts"] and metadata == expected.get("metadata", {}))


def show(message: Chunk, *, whole: bool = False) -> None:
    """One line a part; with `whole` every text to its last word."""
    for part in message["parts"]:
        kind, state, detail = part["type"], part.get("state", ""), part.get("text") or part.get("url") or part.get("title") or ""
        if kind == "step-start":
            continue
        if kind.startswith("tool-"):
            result = part.get("errorText") or json.dumps(part.get("output"))
            detail = f"{json.dumps(part.get('input'), ensure_ascii=False)} -> {result}"
        elif kind.startswith("data-"):
            detail = json.dumps(part["data"])
        lines = textwrap.wrap(detail, WIDTH) if whole and kind == "text" else [shortened(detail, ended=state != "streaming")]
        print(f"   {kind:<16} {'unfinished' if state == 'streaming' else state:<17} {lines[0]}")
        print("".join(f"{'':<38}{line}\n" for line in lines[1:]), end="")


def shortened(text: str, *, ended: bool) -> str:
    """Whole words from both ends of the text. Of one that has not ended, the last word may be half of one, and is left out."""
    words = text.split(" ") if ended else [*text.split(" ")[:-1], "…"]
    if len(" ".join(words)) <= WIDTH:
        return " ".join(words)
    ends = words, words[::-1]
    head, tail = (
        textwrap.wrap(" ".join(end), WIDTH // 2, break_long_words=False, break_on_hyphens=False)[0].split() for end in ends
    )
    return " ".join([*head, "…", *tail[::-1]])


def command_line_tool() -> str:
    """How `persist` is called here: its name, if the shell finds it, or where it is."""
    command = Path(sys.executable).with_name("persist")
    found = shutil.which("persist")
    return short(command) if command.exists() and (found is None or Path(found) != command) else "persist"


def title(text: str) -> None:
    print(f"\n{text}")


def yes(true: bool) -> str:
    return "yes" if true else "NO"


def short(path: Path) -> str:
    """As one would type it here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


if __name__ == "__main__":
    sys.exit(main())
