"""Owners, and tasks of A2A."""

from a2a.auth.user import User
from a2a.server.context import ServerCallContext
from a2a.types.a2a_pb2 import Artifact, Message, Part, Role, Task, TaskState, TaskStatus


class Named(User):
    """Somebody with a name; nobody without one."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def is_authenticated(self) -> bool:
        return bool(self.name)

    @property
    def user_name(self) -> str:
        return self.name


def of(owner: str) -> ServerCallContext:
    return ServerCallContext(user=Named(owner))


def task(id: str = "t", *, state: int = TaskState.TASK_STATE_WORKING, parts: int = 0, said: int = 1) -> Task:
    """A task that goes on, with an artifact in so many parts."""
    return Task(
        id=id,
        context_id="c",
        status=TaskStatus(state=state),  # type: ignore[arg-type]  # a number is taken, too
        history=[Message(message_id=f"m{n}", role=Role.ROLE_USER, parts=[Part(text=f"said {n}")]) for n in range(said)],
        artifacts=[Artifact(artifact_id="a", parts=[Part(text=f"{n} " + "x" * 1000) for n in range(parts)])] if parts else [],
    )
