"""Files that hold the rows of many segments, for small batches: many queries read each segment, and to open a file takes longer than to
read a thousand rows.

A local session keeps them for its next batches: a stream opens the new segments of an hour, and one file with the others.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from polydomo.scratch import scratch_directory

MOST = 16  # files that a session keeps


@dataclass(frozen=True)
class Piece:
    path: str
    kind: str
    holds: frozenset[str]  # paths of segments


@dataclass
class Combined:
    """``few``: segments that queries read one by one."""

    few: int = 100
    pieces: list[Piece] = field(default_factory=list)  # the one that was used last is the last
    _folder: str = ""
    _written: int = 0

    def files(self, kind: str, paths: Sequence[str], write: Callable[[list[str], str], None]) -> list[str]:
        """Few files that hold the rows of these segments. ``write`` writes those of some files to a directory."""
        left, used = set(paths), []
        for piece in reversed(self.pieces):
            if piece.kind == kind and piece.holds <= left:
                left -= piece.holds
                used.append(piece)
        found = [*(piece.path for piece in used), *sorted(left)]
        if len(found) > self.few:
            self._folder = self._folder or str(scratch_directory("journal"))
            self._written += 1
            path = f"{self._folder}/{self._written}"
            write(found, path)
            used, found = [Piece(path, kind, frozenset(paths))], [path]
        self.pieces = [*(piece for piece in self.pieces if piece not in used), *used]
        while len(self.pieces) > MOST:
            shutil.rmtree(self.pieces.pop(0).path, ignore_errors=True)
        return found

    def clear(self) -> None:
        """Removes all files."""
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
        self.pieces, self._folder = [], ""
