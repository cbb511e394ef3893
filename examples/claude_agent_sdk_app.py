"""A Claude Agent SDK application on a machine that can be lost at any moment, and goes on where it was on another one.

    pip install '.[claude-agent-sdk]'                          # in a clone of persist; elsewhere agent-persist
    python examples/claude_agent_sdk_app.py --crash-in Faro    # books two of three cities, and dies of SIGKILL
    python examples/claude_agent_sdk_app.py                    # books the third; the files of the session are gone
    persist ls transcripts --url sqlite:///claude.db           # the session; `persist show SESSION` prints it

It runs offline: instead of Claude Code the SDK starts this file with --cli, a script that speaks its protocol. It writes its
transcript to local files, as Claude Code does, and they are lost with the process. What persist adds is the one line that
makes `sessions`: the SDK mirrors every line of the transcript there, and resumes from there.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CITIES = ("Lisbon", "Porto", "Faro")
SESSION = "6f0c1c3e-8f6a-4d55-9a52-0d1f5a9b7c11"


async def main(url: str, crash_in: str | None) -> None:
    """Book every city that is not booked yet, one turn each."""
    try:
        from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, TextBlock, project_key_for_directory, query

        from persist import AsyncStore
        from persist.integrations.claude_agent_sdk import PersistSessionStore
    except ImportError as missing:
        raise SystemExit(f"{missing}. In a clone of persist: pip install '.[claude-agent-sdk]'") from None

    with tempfile.TemporaryDirectory() as machine:
        cli = Path(machine, "cli")
        cli.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" --cli "$@"\n', encoding="utf-8")
        cli.chmod(0o700)
        async with AsyncStore.open(url) as store:
            sessions = PersistSessionStore(store)
            folder = Path(__file__).resolve().parent  # the same on every machine, and so is the key of its transcripts
            project = project_key_for_directory(folder)
            for city in CITIES:
                stored = await sessions.load({"project_key": project, "session_id": SESSION}) or []
                if f"{city} is booked." in [_text(entry) for entry in stored]:
                    continue
                options = ClaudeAgentOptions(
                    cli_path=cli,
                    cwd=folder,
                    session_store=sessions,
                    resume=SESSION if stored else None,
                    env={"CLAUDE_CONFIG_DIR": machine, "PROJECT": project, "CRASH_IN": crash_in or ""},
                )
                async for message in query(prompt=f"Book {city}.", options=options):
                    if isinstance(message, AssistantMessage):
                        print(*(block.text for block in message.content if isinstance(block, TextBlock)), flush=True)
            print(f"{len(await sessions.list_sessions(project))} session with all of them", flush=True)


def _text(entry: Any) -> str:
    content = entry.get("message", {}).get("content")
    return content if isinstance(content, str) else "".join(block["text"] for block in content or ())


# ---------------------------------------------------------------- the script that the SDK starts instead of Claude Code


def cli(arguments: Sequence[str]) -> None:
    """Answer every prompt on standard input, and write the transcript below CLAUDE_CONFIG_DIR."""
    log = Path(os.environ["CLAUDE_CONFIG_DIR"], "projects", os.environ["PROJECT"], f"{SESSION}.jsonl")
    log.parent.mkdir(parents=True, exist_ok=True)
    known = len(log.read_text(encoding="utf-8").splitlines()) if log.exists() else 0
    for line in sys.stdin:
        given = json.loads(line)
        if given["type"] == "control_request":
            answer = {"subtype": "success", "request_id": given["request_id"], "response": {}}
            _say({"type": "control_response", "response": answer})
        elif given["type"] == "user":
            question = given["message"]["content"]
            city = question.removeprefix("Book ").removesuffix(".")
            _write(log, "user", question)
            if city == os.environ["CRASH_IN"]:
                os.kill(os.getppid(), signal.SIGKILL)  # the machine is lost, this program with it
                os._exit(1)
            known += 2
            content = [{"type": "text", "text": f"{city} is booked."}]
            _write(log, "assistant", content)
            _say({"type": "assistant", "message": {"role": "assistant", "model": "script", "content": content}})
            done = {"duration_ms": 1, "duration_api_ms": 1, "is_error": False, "num_turns": known // 2, "session_id": SESSION}
            _say({"type": "result", "subtype": "success", **done})


def _write(log: Path, role: str, content: Any) -> None:
    """Append a line to the transcript, and tell the SDK, which mirrors it."""
    entry = {"type": role, "uuid": str(uuid.uuid4()), "sessionId": SESSION, "message": {"role": role, "content": content}}
    with log.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
    _say({"type": "transcript_mirror", "filePath": str(log), "entries": [entry]})


def _say(message: Any) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    if "--cli" in sys.argv:
        cli(sys.argv)
        raise SystemExit
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="sqlite:///claude.db")
    parser.add_argument("--crash-in", choices=CITIES)
    options = parser.parse_args()
    asyncio.run(main(options.url, options.crash_in))
