"""Size limits for the messages of one peer."""

from polydomo import limits


class Bounds:
    """One object for all links of a server."""

    def __init__(
        self,
        max_frame: int = limits.MAX_FRAME,
        max_frames: int = limits.MAX_FRAMES,
        max_message: int = limits.MAX_MESSAGE,
        max_handshake: int = limits.MAX_HANDSHAKE,
        extensions: bytes = b"",
    ) -> None:
        self.max_frame = max_frame
        self.max_frames = max_frames
        self.max_message = max_message
        self.max_handshake = max_handshake
        self.extensions = extensions  # the list that this side announces


DEFAULT_BOUNDS = Bounds()
