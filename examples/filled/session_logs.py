"""Session logs of agents, as files beside the database: of the finished review, and of one that broke off."""

from pathlib import Path

from examples.filled.reviews import LOG
from examples.filled.times import Times
from persist.sessionlog import SessionLogWriter, slug_for_cwd


def write(folder: Path, times: Times) -> list[Path]:
    """Write the logs below `folder`, and give their paths."""
    project = slug_for_cwd("/home/agent/shop-api")
    about = {"initial_prompt": "Read pull request 412 of example/shop-api.", "model": "lighthouse/lighthouse-large-2"}
    begun = int(times.ago(days=2, hours=3).timestamp() * 1000)
    with SessionLogWriter(folder, project, **about) as log:
        log.feed({"type": "session", "id": LOG})
        log.feed_many(_looked(LOG, begun, "git diff --stat main", "3 files changed, 41 insertions(+), 22 deletions(-)"))
        log.feed_many(_looked(LOG, begun + 20_000, "cat checkout/totals.py", "def total(lines):\n    return sum(...)"))
        log.feed(_said(LOG, begun + 40_000, {"type": "text", "text": "Totals are rounded once for each line: that is the cent."}))
        log.finalize(num_turns=6, total_cost_usd=0.041, stop_reason="end_turn")
        paths = [log.path]
    with SessionLogWriter(folder, project, initial_prompt="Read pull request 398.", model="lighthouse/lighthouse-large-2") as log:
        log.feed({"type": "session", "id": "ses-review-398"})
        log.feed_many(_looked("ses-review-398", begun + 90_000_000, "git fetch", "Cloning into 'shop-api'..."))
        paths.append(log.path)
    return paths


def _said(session, at, *content):
    return {
        "type": "message_end",
        "sessionId": session,
        "timestamp": at,
        "message": {"role": "assistant", "content": list(content)},
    }


def _looked(session, at, command, output):
    call = {"type": "toolCall", "id": f"call-{at}", "name": "bash", "arguments": {"command": command}}
    return [
        _said(session, at, {"type": "text", "text": "Let me look."}, call),
        {"type": "tool_execution_end", "sessionId": session, "toolCallId": f"call-{at}", "result": output},
    ]
