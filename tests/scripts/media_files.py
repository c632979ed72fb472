# SPDX-License-Identifier: Apache-2.0
"""PNG, OpenEXR and WAV files as far as the example graphs need them, without any library for media."""
import struct
import zlib

import numpy as np


def write_png(path, pixels):
    """Rows, columns, 3 or 4 components of 8 bits."""
    height, width, channels = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, {3: 2, 4: 6}[channels], 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) +
                     chunk(b"IDAT", zlib.compress(rows.tobytes(), 1)) + chunk(b"IEND", b""))


def unfilter(kind, row, above, step):
    """One row of a PNG as it was before its filter."""
    if kind == 0:
        return row
    if kind == 2:
        return row + above
    result = np.zeros_like(row)
    if kind == 1:
        return np.cumsum(row.reshape(-1, step), axis=0, dtype=np.uint8).reshape(-1)
    for i in range(len(row)):
        left = int(result[i - step]) if i >= step else 0
        up, corner = int(above[i]), int(above[i - step]) if i >= step else 0
        if kind == 3:
            guess = (left + up) // 2
        else:
            away = [abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)]
            guess = (left, up, corner)[away.index(min(away))]
        result[i] = (int(row[i]) + guess) & 255
    return result


def read_png(path):
    data, at, packed = path.read_bytes(), 8, b""
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack_from(">IIBB", data, at + 8)
        if kind == b"IDAT":
            packed += data[at + 8:at + 8 + length]
        at += 12 + length
    assert depth == 8
    channels = {0: 1, 2: 3, 6: 4}[colour]
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + width * channels)
    result = np.zeros((height, width * channels), np.uint8)
    above = np.zeros(width * channels, np.uint8)
    for y in range(height):
        above = result[y] = unfilter(rows[y, 0], rows[y, 1:], above, channels)
    return result.reshape(height, width, channels)


def write_exr(path, pixels, names):
    """Rows, columns, components of halves or floats. Scanlines without compression."""
    height, width, _ = pixels.shape
    kind = 1 if pixels.dtype == np.float16 else 2
    order = sorted(names)

    def attribute(name, type_name, data):
        return name.encode() + b"\0" + type_name.encode() + b"\0" + struct.pack("<i", len(data)) + data

    window = struct.pack("<4i", 0, 0, width - 1, height - 1)
    channels = b"".join(name.encode() + b"\0" + struct.pack("<iiii", kind, 0, 1, 1) for name in order) + b"\0"
    header = struct.pack("<II", 20000630, 2) + b"".join([
        attribute("channels", "chlist", channels),
        attribute("compression", "compression", b"\0"),
        attribute("dataWindow", "box2i", window),
        attribute("displayWindow", "box2i", window),
        attribute("lineOrder", "lineOrder", b"\0"),
        attribute("pixelAspectRatio", "float", struct.pack("<f", 1)),
        attribute("screenWindowCenter", "v2f", struct.pack("<ff", 0, 0)),
        attribute("screenWindowWidth", "float", struct.pack("<f", 1))]) + b"\0"
    planes = np.ascontiguousarray(pixels[:, :, [names.index(name) for name in order]].transpose(0, 2, 1))
    row_bytes = planes[0].nbytes
    table_end = len(header) + 8 * height
    offsets = b"".join(struct.pack("<Q", table_end + y * (8 + row_bytes)) for y in range(height))
    rows = b"".join(struct.pack("<ii", y, row_bytes) + planes[y].tobytes() for y in range(height))
    path.write_bytes(header + offsets + rows)


def read_exr(path):
    """Components in the order R, G, B, A, or Y, A. Only what write_exr writes, with any window."""
    data = path.read_bytes()
    attributes, at = {}, 8
    while data[at] != 0:
        name_end = data.index(b"\0", at)
        type_end = data.index(b"\0", name_end + 1)
        size, = struct.unpack_from("<i", data, type_end + 1)
        attributes[data[at:name_end].decode()] = data[type_end + 5:type_end + 5 + size]
        at = type_end + 5 + size
    assert attributes["compression"] == b"\0", "it is compressed"
    left, top, right, bottom = struct.unpack("<4i", attributes["dataWindow"])
    width, height = right - left + 1, bottom - top + 1
    names, kinds, channels, place = [], set(), attributes["channels"], 0
    while channels[place] != 0:
        end = channels.index(b"\0", place)
        names.append(channels[place:end].decode())
        kinds.add(struct.unpack_from("<i", channels, end + 1)[0])
        place = end + 17
    kind, = kinds
    row = np.dtype([("y", "<i4"), ("bytes", "<i4"),
                    ("samples", {1: "<f2", 2: "<f4"}[kind], (len(names), width))])
    rows = np.frombuffer(data, row, height, at + 1 + 8 * height)
    assert np.array_equal(rows["y"], np.arange(top, bottom + 1))
    order = [name for name in "RGBYA" if name in names]
    return rows["samples"].transpose(0, 2, 1)[:, :, [names.index(name) for name in order]]


def write_wav(path, sound, rate):
    """Frames, channels of 32-bit floats."""
    data = np.ascontiguousarray(sound, "<f4").tobytes()
    channels = sound.shape[1]
    head = struct.pack("<HHIIHHH", 3, channels, rate, rate * channels * 4, channels * 4, 32, 0)
    fact = struct.pack("<I", len(sound))
    body = (b"WAVEfmt " + struct.pack("<I", len(head)) + head + b"fact" + struct.pack("<I", 4) + fact +
            b"data" + struct.pack("<I", len(data)) + data)
    path.write_bytes(b"RIFF" + struct.pack("<I", len(body)) + body)


def read_wav(path):
    data, at = path.read_bytes(), 12
    while at < len(data):
        kind, size = struct.unpack_from("<4sI", data, at)
        if kind == b"fmt ":
            code, channels, _, _, _, bits = struct.unpack_from("<HHIIHH", data, at + 8)
            assert (code, bits) == (3, 32)
        if kind == b"data":
            return np.frombuffer(data, "<f4", size // 4, at + 8).reshape(-1, channels)
        at += 8 + size + size % 2
    raise ValueError(f"{path}: no data")
