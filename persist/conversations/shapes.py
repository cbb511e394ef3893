"""What the columns of conversations must hold to be read, beyond what their types say."""

from persist.conversations.models import messages, progressions
from persist.db.schema.shapes import Shapes, floats32, texts
from persist.db.values.clock import from_epoch_s
from persist.errors import InvalidValue


def _seconds(value: float) -> str | None:
    """Checks a message's instant, which is stored as the number its runtime gave."""
    try:
        from_epoch_s(value)
    except InvalidValue:
        return "no instant"
    return None


SHAPES: Shapes = {
    messages.c.created_at: _seconds,
    messages.c.embedding: floats32,
    progressions.c.collection: texts,
}
