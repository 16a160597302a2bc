"""A name server on 127.0.0.1 that knows one name, whose address is 127.0.0.1 too. Says so when it listens.

    name_server.py NAME
"""

import socket
import sys

HEADER_BYTES = 12
QUESTION_END_BYTES = 5  # The last label's end, type and class.
TYPE_A = b"\x00\x01"


def name_in(query: bytes) -> tuple[str, int]:
    """The name that is asked for, and where it ends."""
    labels, at = [], HEADER_BYTES
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode())
        at += 1 + length
    return ".".join(labels), at


def reply(query: bytes, known: str) -> bytes:
    name, end = name_in(query)
    question = query[HEADER_BYTES : end + QUESTION_END_BYTES]
    answer, code = b"", 0 if name == known else 3
    if name == known and query[end + 1 : end + 3] == TYPE_A:
        # A pointer to the name in the question; type, class, ttl, length, address.
        answer = b"\xc0\x0c" + TYPE_A + b"\x00\x01" + b"\x00\x00\x00\x01" + b"\x00\x04" + bytes([127, 0, 0, 1])
    counts = b"\x00\x01" + (b"\x00\x01" if answer else b"\x00\x00") + b"\x00\x00\x00\x00"
    return query[:2] + bytes([0x81, 0x80 | code]) + counts + question + answer


def main() -> None:
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))
    print('{"listens": true}', flush=True)
    while True:
        query, client = server.recvfrom(4096)
        server.sendto(reply(query, sys.argv[1]), client)


if __name__ == "__main__":
    main()
