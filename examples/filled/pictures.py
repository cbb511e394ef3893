"""Small pictures, made here: PNG files of two colours."""

import struct
import zlib
from base64 import b64encode


def png(width: int, height: int, level: int = 9) -> bytes:
    """A picture of bars. With level 0 its pixels are not compressed, which makes a large file of a small picture."""
    bars = bytearray()
    for y in range(height):
        bars.append(0)  # a line without a filter
        for x in range(width):
            tall = height - y <= (x // 8 * 37 + 11) % height
            bars += b"\x2f\x6f\xde" if tall and x % 8 < 6 else b"\xf4\xf6\xfa"
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(bytes(bars), level)) + _chunk(b"IEND", b"")
    )


def data_url(picture: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{b64encode(picture).decode()}"


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
