"""Blobs: a few contents put again and again, read in parts, and deleted."""

from hashlib import sha256
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from persist.blobs.content import INLINE, PIECE
from persist.db.values.clock import epoch_ms
from tests.statemachines.machine import UNSAID, Machine, Refused, pages

CONTENTS = [b"", b"small", bytes(INLINE), b"x" * (INLINE + 1), bytes(PIECE + 5)]
WHICH = st.sampled_from(range(len(CONTENTS)))
TYPES = st.sampled_from(["image/png", "text/plain", ""])
PLACES = st.sampled_from([0, 1, 4, INLINE, PIECE, 2 * PIECE])


class Blobs(Machine):
    domain = "blobs"

    def __init__(self) -> None:
        super().__init__()
        self.stored: dict[str, tuple[bytes, str, int]] = {}

    @rule(which=WHICH, kind=TYPES, parts=st.booleans())
    def put(self, which: int, kind: str, parts: bool) -> None:
        content = CONTENTS[which]

        def expect(got: Any) -> Any:
            if not kind:
                raise Refused("InvalidValue")
            digest = sha256(content).hexdigest()
            _, known, at = self.stored.get(digest, (b"", kind, 0))
            self.stored[digest] = (content, known, max(at, epoch_ms(self.clock())))
            assert (got.sha256, got.media_type, got.size) == (digest, known, len(content))
            return UNSAID

        self.do("blobs.put", [content[:3], content[3:]] if parts else content, kind, expect=expect)

    @rule(which=WHICH, start=PLACES, end=PLACES | st.none())
    def read(self, which: int, start: int, end: int | None) -> None:
        digest = sha256(CONTENTS[which]).hexdigest()

        def expect(got: Any) -> Any:
            if digest not in self.stored:
                raise Refused("NotFound")
            return CONTENTS[which][start:end]

        self.do("blobs.read", digest, start=start, end=end, expect=expect)

    @rule(which=WHICH)
    def delete(self, which: int) -> None:
        digest = sha256(CONTENTS[which]).hexdigest()
        self.do("blobs.delete", digest, expect=lambda got: self.stored.pop(digest, None) is not None)

    def seen(self, tx: Any) -> Any:
        return [(one.sha256, one.media_type, one.size) for page in pages(tx.blobs.list, 2) for one in page]

    def expected(self) -> Any:
        newest = sorted(self.stored.items(), key=lambda item: (item[1][2], item[0]), reverse=True)
        return [(digest, kind, len(content)) for digest, (content, kind, _) in newest]
