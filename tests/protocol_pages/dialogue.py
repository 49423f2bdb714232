"""A dialogue of raw sockets with a broker, recorded frame by frame, as text and as a diagram."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

Names = dict[bytes, str]  # bytes that differ from run to run -> what to show instead


@dataclass
class Sent:
    sender: str
    receiver: str
    command: str
    frames: list[bytes]


def shown(frame: bytes, names: Names) -> str:
    """A frame as the pages write it: ``"text"``, ``01``, ``"text"+01`` or ``<name>``."""
    if frame in names:
        return f"<{names[frame]}>"
    found = re.fullmatch(rb"([ -~]*)([^ -~]*)", frame)
    if found is not None and not found[2]:
        return f"'{frame.decode()}'" if b'"' in frame else f'"{frame.decode()}"'
    if found is not None and found[1]:
        return f'"{found[1].decode()}"+{found[2].hex()}'
    return frame.hex()


def shown_frames(frames: list[bytes], names: Names) -> list[str]:
    return [" ".join(shown(frame, names) for frame in frames)]


@dataclass
class Dialogue:
    names: Names = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    lines_of: Callable[[list[bytes], Names], list[str]] = shown_frames

    def record(self, sender: str, receiver: str, command: str, frames: list[bytes]) -> None:
        self.sent.append(Sent(sender, receiver, command, frames))

    def text(self) -> str:
        """One line per message; further lines of a message are indented."""
        wide = max(len(sent.command) for sent in self.sent)
        peers = max(len(f"{sent.sender} -> {sent.receiver}") for sent in self.sent)
        out = []
        for sent in self.sent:
            first, *rest = self.lines_of(sent.frames, self.names)
            out.append(f"{f'{sent.sender} -> {sent.receiver}':{peers}}  {sent.command:{wide}}  {first}")
            out += [" " * (peers + wide + 4) + line for line in rest]
        return "\n".join(out) + "\n"

    def diagram(self) -> str:
        """A Mermaid sequence diagram."""
        peers = {peer for sent in self.sent for peer in (sent.sender, sent.receiver)}
        order = [peer for peer in ("client", "MDP client", "broker", "worker", "service") if peer in peers]
        alias: dict[str, str] = {peer: peer.replace(" ", "_") for peer in order}
        lines = [
            "sequenceDiagram",
            *(f"    participant {alias[peer]}{' as ' + peer if ' ' in peer else ''}" for peer in order),
        ]
        lines += [f"    {alias[sent.sender]}->>{alias[sent.receiver]}: {sent.command}" for sent in self.sent]
        return "\n".join(lines) + "\n"
