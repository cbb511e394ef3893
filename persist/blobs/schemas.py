"""Values of blobs."""

from datetime import datetime

from persist.db.values.frozen import Value


class Blob(Value):
    """A row of blobs, without its body. Equal bytes are one blob, under the media type with which they were first put."""

    sha256: str
    """The SHA-256 of the bytes, in hex."""
    media_type: str
    size: int
    created_at: datetime
    put_at: datetime
    """When the bytes were last put: what nothing names is pruned some time after that."""
