"""What all decoders share: the order of frames and failure.

The rule: a frame that was complete before the bytes went wrong always comes out, however the bytes were cut. When one
read holds good frames and then an error, `feed` returns the frames and the error is raised by the next call. The price
is that such an error is seen one call later; a stream always makes that call, be it `eof`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from headrace.framing.frame import MAX_FRAME_BYTES, Frame, FramingError


class FrameDecoder(ABC):
    """A `Decoder` whose subclasses only say how bytes become frames (`_decode`) and how a stream ends (`_finish`)."""

    def __init__(self, max_frame: int = MAX_FRAME_BYTES) -> None:
        if max_frame < 1:
            raise ValueError(f"max_frame must be at least 1 byte, not {max_frame}")
        self._max = max_frame
        self._failure: tuple[str, str] | None = None  # not the exception: its traceback would be a reference cycle

    def feed(self, data: bytes) -> list[Frame]:
        """Take the next bytes; return the frames they complete, in order. Raises FramingError."""
        frames: list[Frame] = []
        self._run(frames, data)
        return frames

    def eof(self) -> list[Frame]:
        """Say that no more bytes come; return the frames that this completes. Raises FramingError.

        Afterwards the decoder takes no more bytes.
        """
        frames: list[Frame] = []
        self._run(frames, None)
        return frames

    def _run(self, frames: list[Frame], data: bytes | None) -> None:
        if self._failure is not None:
            message, reason = self._failure
            raise FramingError(message, reason=reason)
        try:
            if data is None:
                self._failure = ("bytes came after the end of the stream", "malformed")
                self._finish(frames)
            else:
                self._decode(data, frames)
        except FramingError as error:
            self._failure = (str(error), error.reason)
            if not frames:
                raise

    @abstractmethod
    def _decode(self, data: bytes, frames: list[Frame]) -> None:
        """Append the frames that `data` completes."""

    @abstractmethod
    def _finish(self, frames: list[Frame]) -> None:
        """Append the frames that the end completes."""

    def _too_large(self, what: str) -> FramingError:
        return FramingError(
            f"{what} is larger than the limit of {self._max} bytes for one frame; if the sender really sends frames "
            f"of that size, configure a higher limit for frames (max_frame)",
            reason="too_large",
        )
