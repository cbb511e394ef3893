"""What persist does for OpenTelemetry itself makes no spans: it would go on for ever."""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import context

_QUIET = context.create_key("persist-quiet")


@contextmanager
def quiet() -> Iterator[None]:
    """Trace no transaction that is made inside the block."""
    token = context.attach(context.set_value(_QUIET, True))
    try:
        yield
    finally:
        context.detach(token)


def is_quiet() -> bool:
    """Whether the caller is inside such a block."""
    return context.get_value(_QUIET) is not None
