"""Small images as data addresses: a PNG encoder for 8-bit grey and RGB, standard library only."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence


def png(pixels: bytes, shape: Sequence[int]) -> bytes:
    """Encode rows of 8-bit pixels; `shape` is (height, width) or (height, width, 3)."""
    height, width = shape[0], shape[1]
    channels = shape[2] if len(shape) == 3 else 1
    if channels not in (1, 3):
        raise ValueError(f"images have one or three channels, not {channels}")
    if len(pixels) != height * width * channels:
        raise ValueError(f"{len(pixels)} bytes do not make an image of shape {tuple(shape)}")
    stride = width * channels
    rows = b"".join(b"\0" + pixels[k * stride : (k + 1) * stride] for k in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in chunks)


def data_address(pixels: bytes, shape: Sequence[int]) -> str:
    """The image as the `src` of an `img` that needs no file."""
    return "data:image/png;base64," + base64.b64encode(png(pixels, shape)).decode()


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
