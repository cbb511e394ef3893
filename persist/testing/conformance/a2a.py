"""Checks of the stores of A2A: `CHECKS` of a `TaskStore`, `WEBHOOK_CHECKS` of a `PushNotificationConfigStore`.

`make()` returns a store that tells owners apart by the user's name, as the SDK does; all of them are over one storage.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from a2a.auth.user import User
from a2a.server.context import ServerCallContext
from a2a.types.a2a_pb2 import (
    Artifact,
    ListTasksRequest,
    Message,
    Part,
    Role,
    Task,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
)
from a2a.utils.errors import InvalidParamsError
from google.protobuf.timestamp_pb2 import Timestamp

from persist.testing.conformance.running import NotConformant, beyond, cancel_after, checks_in, expect, expect_error, new_id

Make = Callable[[], Any]
Check = Callable[[Make], Awaitable[None]]

_ENDS = ("COMPLETED", "CANCELED", "FAILED", "REJECTED")


class _Named(User):
    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def user_name(self) -> str:
        return self._name


def _of(owner: str) -> Any:
    return ServerCallContext(user=_Named(owner))


def _task(id: str, *said: str, state: str = "WORKING", at: int | None = 1, context: str = "c", parts: int = 0) -> Any:
    instant = None if at is None else Timestamp(seconds=at)
    history = [Message(message_id=f"m{n}", role=Role.ROLE_USER, parts=[Part(text=text)]) for n, text in enumerate(said)]
    artifacts = [Artifact(artifact_id="a", name="n", parts=[Part(text=f"{n}") for n in range(parts)])] if parts else []
    status = TaskStatus(state=TaskState.Value(f"TASK_STATE_{state}"), timestamp=instant)
    return Task(id=id, context_id=context, status=status, history=history, artifacts=artifacts)


async def _ids(store: Any, owner: Any, **asked: Any) -> list[str]:
    return [task.id for task in (await store.list(ListTasksRequest(**asked), owner)).tasks]


async def an_unknown_task_is_nothing(make: Make) -> None:
    """A task that nobody saved is None, deleting it does nothing, and an owner without tasks has an empty list."""
    store, owner = make(), _of(new_id())
    expect(None, await store.get(new_id(), owner), "There is no task that nobody saved.")
    await store.delete(new_id(), owner)
    page = await store.list(ListTasksRequest(), owner)
    expect(([], 0, ""), (list(page.tasks), page.total_size, page.next_page_token), "Who saved no task has none.")


async def a_task_comes_back_exactly(make: Make) -> None:
    """A task comes back equal: its history, artifacts, bytes, data, metadata, and the instant of its status."""
    owner, task = _of(new_id()), _task(new_id(), 'line\u2028, quote", back\\slash, \xe9, \U0001f600, %s', "é" * 300_000, parts=3)
    task.artifacts[0].parts.add().raw = bytes(range(256))
    task.artifacts[0].parts.add().data.struct_value.update({"z": 1, "a": [None, True, 1.5]})
    task.artifacts.add().artifact_id = "empty"
    task.history.add()
    task.metadata.update({"z": 1.5, "a": [None, True, {"": ""}]})
    task.status.timestamp.nanos = 123_456_789
    task.status.message.message_id = "last"
    await make().save(task, owner)
    expect(task, await make().get(task.id, owner), "A task comes back as it was saved.")
    bare = Task(id=new_id())
    await make().save(bare, owner)
    expect(bare, await make().get(bare.id, owner), "A task that has nothing but its id comes back.")


async def a_save_takes_the_place_of_the_last(make: Make) -> None:
    """A task is what was saved last, also where it has become shorter or other parts of it have changed."""
    owner, id = _of(new_id()), new_id()
    for said, parts in (("a", 0), ("ab", 2), ("abc", 300), ("xbc", 301), ("x", 1), ("", 0), ("abc", 2)):
        task = _task(id, *said, parts=parts)
        await make().save(task, owner)
        expect(task, await make().get(id, owner), "A task is what was saved last.")


async def owners_are_apart(make: Make) -> None:
    """An owner sees, lists and deletes its own tasks alone, also where another one has a task of the same id."""
    base, id = new_id("Name a"), new_id()
    owners = [_of(name) for name in (base, base.upper(), base + " ", base + "%", base.replace("a", "á"))]
    for number, owner in enumerate(owners):
        await make().save(_task(id, f"{number}"), owner)
    for number, owner in enumerate(owners):
        expect(_task(id, f"{number}"), await make().get(id, owner), "An owner has its own task of an id.")
        expect([id], await _ids(make(), owner), "An owner lists its own tasks.")
    await make().delete(id, owners[0])
    expect([None, _task(id, "1")], [await make().get(id, owner) for owner in owners[:2]], "An owner deletes its own task.")


async def lists_are_filtered(make: Make) -> None:
    """A list has the tasks of the context, of the state, and whose status is not older than asked for."""
    owner = _of(new_id())
    for id, context, state, at in (
        ("1", "c", "WORKING", 1),
        ("2", "c", "FAILED", 2),
        ("3", "d", "WORKING", 3),
        ("4", "c", "WORKING", None),
    ):
        await make().save(_task(id, context=context, state=state, at=at), owner)
    working = TaskState.TASK_STATE_WORKING
    for asked, expected in (
        ({"context_id": "c"}, ["2", "1", "4"]),
        ({"status": working}, ["3", "1", "4"]),
        ({"status_timestamp_after": Timestamp(seconds=2)}, ["3", "2"]),
        ({"context_id": "c", "status": working}, ["1", "4"]),
    ):
        page = await make().list(ListTasksRequest(**asked), owner)
        expect((expected, len(expected)), ([task.id for task in page.tasks], page.total_size), f"A list is filtered by {asked}.")


async def the_latest_status_comes_first(make: Make) -> None:
    """A list has the latest status first, equal ones by id, the greatest first, and tasks without an instant last."""
    owner = _of(new_id())
    for id, at in (("a", 1), ("c", 2), ("b", 2), ("d", None), ("e", None), ("f", 10)):
        await make().save(_task(id, at=at), owner)
    expect(["f", "c", "b", "a", "e", "d"], await _ids(make(), owner), "The latest status comes first.")
    await make().save(_task("a", at=11), owner)
    expect(["a", "f"], await _ids(make(), owner, page_size=2), "A task whose status changed moves.")


async def pages_have_each_task_once(make: Make) -> None:
    """The pages of a list have each task once, however many are deleted in between, and tell how many there are in all."""
    owner = _of(new_id())
    for number in range(7):
        await make().save(_task(f"{number}", at=number // 2), owner)
    found, token, sizes = list[str](), "", list[int]()
    while True:
        page = await make().list(ListTasksRequest(page_size=3, page_token=token), owner)
        found += [task.id for task in page.tasks]
        sizes.append(page.total_size)
        token = page.next_page_token
        if not token:
            break
        await make().delete(found[-1], owner)
    expect(list("6543210"), found, "Pages have each task once, in order.")
    expect([7, 6, 5], sizes, "A page tells how many tasks there are in all.")


async def a_broken_token_is_refused(make: Make) -> None:
    """A token that no list gave is refused with an InvalidParamsError."""
    owner = _of(new_id())
    await make().save(_task("a"), owner)
    for token in ("x", "é", "bnVsbA", "W10", new_id()):
        listing = make().list(ListTasksRequest(page_token=token), owner)
        await expect_error(InvalidParamsError, listing, f"{token!r} is no token of a list.")


@beyond
async def tokens_are_an_owners_own(make: Make) -> None:
    """A token that was given to another owner is refused: it tells where that owner's tasks are."""
    one, other = _of(new_id()), _of(new_id())
    for id in "abc":
        await make().save(_task(id), one)
        await make().save(_task(id), other)
    token = (await make().list(ListTasksRequest(page_size=1), one)).next_page_token
    expect(["b"], await _ids(make(), one, page_size=1, page_token=token), "A token leads to the next page.")
    listing = make().list(ListTasksRequest(page_token=token), other)
    await expect_error(InvalidParamsError, listing, "A token is of no use to another owner.")


@beyond
async def a_final_state_is_final(make: Make) -> None:
    """A task that ended cannot be saved in another state: it is refused with an InvalidParamsError, and stays as it was."""
    owner = _of(new_id())
    for end in _ENDS:
        id = new_id()
        await make().save(_task(id, state=end), owner)
        for state in ("WORKING", "SUBMITTED", *(other for other in _ENDS if other != end)):
            await expect_error(
                InvalidParamsError, make().save(_task(id, "x", state=state), owner), "A task that ended stays ended."
            )
        expect(_task(id, state=end), await make().get(id, owner), "A refused save changes nothing.")
        await make().save(_task(id, "done", state=end), owner)
        expect(_task(id, "done", state=end), await make().get(id, owner), "What belongs to the end may follow.")


async def what_is_returned_is_a_copy(make: Make) -> None:
    """Changing a task that was given or returned changes nothing that is stored."""
    store, owner, given = make(), _of(new_id()), _task("a", "said")
    await store.save(given, owner)
    given.history.add()
    (listed,) = (await store.list(ListTasksRequest(), owner)).tasks
    for one in (await store.get("a", owner), listed):
        expect(_task("a", "said"), one, "A task does not change with the object that was given.")
        one.history.add()
    expect(_task("a", "said"), await store.get("a", owner), "A task does not change with one that was returned.")


async def of_concurrent_savers_one_is_last(make: Make) -> None:
    """If many callers save a task at once, one version is stored whole."""
    owner, id = _of(new_id()), new_id()
    tasks = [_task(id, *(f"{number}.{said}" for said in range(number + 1)), parts=10 - number) for number in range(8)]
    await asyncio.gather(*(make().save(task, owner) for task in tasks))
    found = await make().get(id, owner)
    if found not in tasks:
        raise NotConformant(
            "Of many that save a task at once one saves the last, and nothing of another is mixed in.", None, found
        )


async def a_cancelled_save_is_whole_or_absent(make: Make) -> None:
    """After a cancelled save the task is there wholly or not at all, and can be saved again."""
    owner = _of(new_id())
    for turns in range(12):
        task = _task(f"{turns}", *"abc", parts=20)
        await cancel_after(turns, make().save(task, owner))
        found = await make().get(task.id, owner)
        if found is not None:
            expect(task, found, "A cancelled save is done wholly or not at all.")
        await make().save(task, owner)
        expect(task, await make().get(task.id, owner), "A cancelled save can be repeated.")


CHECKS: tuple[Check, ...] = checks_in(globals())
"""The checks of a task store, in the order in which a failure tells the most."""


def _hook(id: str = "", url: str = "https://example.org/é?a=%s") -> Any:
    return TaskPushNotificationConfig(id=id, url=url, token="secret")


async def an_unknown_webhook_is_nothing(make: Make) -> None:
    """A task without webhooks has an empty list, and deleting what is not there does nothing."""
    task, owner = new_id(), _of(new_id())
    expect([], list(await make().get_info(task, owner)), "A task has no webhooks at first.")
    expect([], list(await make().get_info_for_dispatch(task)), "There is nobody to notify at first.")
    for id in (None, "1"):
        await make().delete_info(task, owner, id)


async def what_is_stored_is_returned(make: Make) -> None:
    """Setting a webhook returns what is stored: with the task's id, and with an id of its own if none is given."""
    task, owner = new_id(), _of(new_id())
    for given in (_hook("1"), _hook()):
        stored = await make().set_info(task, given, owner)
        found = [one for one in await make().get_info(task, owner) if one.id == stored.id]
        expect([stored], found, "What is returned is what is stored.")
        expect((task, given.url, given.token), (stored.task_id, stored.url, stored.token), "A webhook is stored whole.")
        expect(True, bool(stored.id), "A webhook has an id.")


async def a_webhook_takes_the_place_of_its_id(make: Make) -> None:
    """A webhook takes the place of the one with its id; those with other ids stay."""
    task, owner = new_id(), _of(new_id())
    for id, url in (("1", "https://a"), ("2", "https://b"), ("1", "https://c")):
        await make().set_info(task, _hook(id, url), owner)
    urls = sorted(one.url for one in await make().get_info(task, owner))
    expect(["https://b", "https://c"], urls, "A webhook takes the place of the one with its id.")


async def a_dispatch_sees_every_owner(make: Make) -> None:
    """A caller sees and deletes its own webhooks alone; a dispatch sees a task's webhooks of all owners."""
    task, owners = new_id(), [_of(new_id()) for _ in range(2)]
    for number, owner in enumerate(owners):
        await make().set_info(task, _hook("1", f"https://{number}"), owner)
    await make().set_info(new_id(), _hook("1", "https://other"), owners[0])
    for number, owner in enumerate(owners):
        expect([f"https://{number}"], [one.url for one in await make().get_info(task, owner)], "A caller sees its own webhooks.")
    urls = sorted(one.url for one in await make().get_info_for_dispatch(task))
    expect(["https://0", "https://1"], urls, "A dispatch sees the webhooks of every owner.")
    await make().delete_info(task, owners[0])
    expect(["https://1"], [one.url for one in await make().get_info_for_dispatch(task)], "A caller deletes its own webhooks.")


async def webhooks_are_deleted_by_id_or_all(make: Make) -> None:
    """With an id one webhook of a task is deleted, without one all of the caller's."""
    task, owner = new_id(), _of(new_id())
    for id in "123":
        await make().set_info(task, _hook(id), owner)
    await make().delete_info(task, owner, "2")
    expect(["1", "3"], sorted(one.id for one in await make().get_info(task, owner)), "A webhook is deleted by its id.")
    await make().delete_info(task, owner)
    expect([], list(await make().get_info(task, owner)), "Without an id all of the caller's webhooks are deleted.")


@beyond
async def a_returned_webhook_is_a_copy(make: Make) -> None:
    """Changing a webhook that was returned changes nothing that is stored."""
    store, task, owner = make(), new_id(), _of(new_id())
    await store.set_info(task, _hook("1", "https://a"), owner)
    for one in [*await store.get_info(task, owner), *await store.get_info_for_dispatch(task)]:
        one.url = "https://changed"
    expect("https://a", (await store.get_info(task, owner))[0].url, "A webhook does not change with one that was returned.")


async def webhooks_that_are_set_at_once_are_kept(make: Make) -> None:
    """Webhooks that many tasks set at once are all kept, and of those with one id one is."""
    task, owner = new_id(), _of(new_id())
    await asyncio.gather(*(make().set_info(task, _hook(f"{number % 4}"), owner) for number in range(12)))
    expect(list("0123"), sorted(one.id for one in await make().get_info(task, owner)), "Each id is there once.")


WEBHOOK_CHECKS: tuple[Check, ...] = checks_in(globals(), *CHECKS)
"""The checks of a store of webhooks, in the order in which a failure tells the most."""
