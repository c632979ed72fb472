# SPDX-License-Identifier: Apache-2.0
"""Writes a small picture: picture.py FILE.png"""
import struct
import sys
import zlib

width, height = 64, 48


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


rows = b"".join(b"\0" + bytes(value for x in range(width) for value in (x * 4, y * 5, (x ^ y) * 4))
                for y in range(height))
with open(sys.argv[1], "wb") as file:
    file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
               chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
