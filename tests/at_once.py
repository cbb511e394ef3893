"""Calls that run at once, in threads of their own."""

import threading
from collections.abc import Callable, Sequence
from typing import Any


def together(functions: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run them all at once -> what each returned; an error of any is raised."""
    barrier = threading.Barrier(len(functions))
    results: list[Any] = [None] * len(functions)
    errors: list[BaseException] = []

    def run(index: int, function: Callable[[], Any]) -> None:
        try:
            barrier.wait(30)
            results[index] = function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]
    return results
