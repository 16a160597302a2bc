"""Server-sent events, as far as the agent sends them.

Source: the parsing rules of the HTML standard, section 9.2.6; without `retry:`, and with ids that
are numbers.
"""

from __future__ import annotations

from typing import NamedTuple

FRAME_SIZE_MAX = 8 << 20
"""An event larger than this is refused, bytes. The largest is a snapshot of 4095 holds."""


class Frame(NamedTuple):
    id: int | None
    event: str
    data: str


class FrameTooLarge(ValueError):
    pass


class Parser:
    """Puts chunks of a stream together to frames."""

    def __init__(self) -> None:
        self._rest = b""
        self._id: int | None = None
        self._event = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[Frame]:
        """Takes the next chunk, cut anywhere; returns the frames that it completes."""
        if b"\n" not in chunk and len(self._rest) + len(chunk) > FRAME_SIZE_MAX:
            raise FrameTooLarge(f"an event is larger than {FRAME_SIZE_MAX} bytes")
        complete, end, self._rest = (self._rest + chunk).rpartition(b"\n")
        frames: list[Frame] = []
        for line in complete.decode("utf-8", "replace").split("\n") if end else ():
            frame = self._take_line(line.removesuffix("\r"))
            if frame is not None:
                frames.append(frame)
        return frames

    def _take_line(self, line: str) -> Frame | None:
        if not line:
            return self._dispatch()
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "id":
            self._id = int(value) if value.isascii() and value.isdigit() else None
        elif field == "event":
            self._event = value
        elif field == "data":
            self._size += len(value)
            if self._size > FRAME_SIZE_MAX:
                raise FrameTooLarge(f"an event is larger than {FRAME_SIZE_MAX} bytes")
            self._data.append(value)
        # Else a comment, or a field of a later version.
        return None

    def _dispatch(self) -> Frame | None:
        frame = Frame(self._id, self._event, "\n".join(self._data)) if self._data else None
        self._id, self._event, self._data, self._size = None, "", [], 0
        return frame
