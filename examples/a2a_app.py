"""An A2A agent that is killed in the middle of an artifact, and goes on with the same task when it is run again.

    pip install '.[a2a]'                                  # in a clone of persist; elsewhere agent-persist
    python examples/a2a_app.py --crash-after 3            # writes three of five chapters, and dies of SIGKILL
    python examples/a2a_app.py                            # writes the other two, and completes the task
    persist ls agent_tasks --url sqlite:///a2a.db         # the tasks of every owner

It needs no network: it does what the framework's request handler does with its task store. What persist adds is the line that
makes `tasks`.
"""

import argparse
import asyncio
import os
import signal

try:
    from a2a.server.context import ServerCallContext
    from a2a.types.a2a_pb2 import Artifact, Part, Task, TaskState, TaskStatus

    from persist import Store
    from persist.integrations.a2a import PersistTaskStore
except ImportError as missing:
    raise SystemExit(f"{missing}. In a clone of persist: pip install '.[a2a]'") from None

CHAPTERS = 5


async def write(tasks: PersistTaskStore, crash_after: int | None) -> None:
    """Write the chapters that are not stored yet; each save writes its new chapter alone."""
    caller = ServerCallContext()
    task = await tasks.get("book", caller)
    if task is None:
        task = Task(id="book", context_id="shelf", status=TaskStatus(state=TaskState.TASK_STATE_WORKING))
        task.artifacts.append(Artifact(artifact_id="chapters", name="A book"))
    for number in range(len(task.artifacts[0].parts) + 1, CHAPTERS + 1):
        print(f"writing chapter {number}", flush=True)
        task.artifacts[0].parts.append(Part(text=f"Chapter {number}."))
        await tasks.save(task, caller)
        if number == crash_after:
            os.kill(os.getpid(), signal.SIGKILL)
    task.status.state = TaskState.TASK_STATE_COMPLETED
    await tasks.save(task, caller)
    print("The book has", len(task.artifacts[0].parts), "chapters.")


def main() -> None:
    """Begin the book, or go on with it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="sqlite:///a2a.db", help="sqlite:///FILE or postgresql://…")
    parser.add_argument("--crash-after", type=int, help="die after this chapter")
    options = parser.parse_args()
    with Store.open(options.url) as store:
        tasks = PersistTaskStore(store)
        asyncio.run(write(tasks, options.crash_after))


if __name__ == "__main__":
    main()
