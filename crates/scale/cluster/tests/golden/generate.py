#!/usr/bin/env python3
"""Writes the golden files of segments and checkpoints: python3 generate.py

It follows docs/format/segment.md and shares no code with the crate.
"""

import pathlib
import struct

CLUSTER = bytes(range(16))
WRITER = bytes(range(0xF0, 0x100))


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def varint(n):
    out = b""
    while n >= 0x80:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def prefixed(data):
    return varint(len(data)) + data


def header(kind, sequence, frames, first, unit, body):
    head = b"FIRNSEG\0" + struct.pack("<IB3x", 1, kind) + CLUSTER
    head += struct.pack("<IIQQ", 7, frames, sequence, 9) + WRITER
    head += struct.pack("<QQI", first, unit, crc32c(body) if body else 0)
    return head + struct.pack("<I", crc32c(head))


def frame(sequence, offset, position, kind, payload):
    head = struct.pack("<IIQB", crc32c(payload), len(payload), position, kind)
    crc = crc32c(struct.pack("<QQ", sequence, offset) + head)
    return struct.pack("<I", crc) + head + payload


def name(tenant, upload):
    ulid = (1 << 80 | 7).to_bytes(16, "big")
    return prefixed(tenant) + ulid + struct.pack("<Q", upload)


def block():
    out = name(b"team-a", 0xABC) + bytes([1, 0]) + varint(300) + varint(2)
    out += struct.pack("<qq", -1, 1_700_000_000_000) + varint(391) + varint(763_000)
    files = prefixed(b"index") + varint(1_048_576) + prefixed(b"data-000") + varint(7)
    return out + varint(2) + files


def fields():
    out = varint(3) + struct.pack("<q", 1_770_206_400_000) + varint(999)
    return out + varint(1000) + varint(42) + varint(9) + WRITER


def main():
    commit = b"\x01" + fields() + varint(1) + block() + varint(1) + name(b"anonymous", 0xABD)
    body = b""
    payloads = [(1, b"plain"), (7, b""), (16, commit), (17, b"")]
    for i, (kind, payload) in enumerate(payloads):
        body += frame(42, len(body), 1000 + i, kind, payload)
    checkpoint = b"FIRNCKP\0" + struct.pack("<I", 1) + CLUSTER + struct.pack("<IQQ", 7, 9, 1002)
    checkpoint += fields() + varint(1) + block() + prefixed(b"series")
    files = {
        "data.segment": header(1, 42, 4, 1000, 42, body) + body,
        "fence.segment": header(2, 38, 0, 0, 0, b""),
        "hand-off.segment": header(3, 50, 0, 0, 0, b""),
        "checkpoint": checkpoint + struct.pack("<I", crc32c(checkpoint)),
    }
    for file, data in files.items():
        pathlib.Path(__file__).with_name(file).write_bytes(data)


main()
