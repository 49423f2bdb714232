"""The Python files below a directory, and which of them changed."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

Stamp = tuple[int, int]  # time of the last change, and size
MOST_FILES = 5_000  # looking at them takes about 20 ms; further ones are not watched
NOT_SOURCE = ("__pycache__", "node_modules")


class SourceFiles:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stamps = self._look()

    def changed(self) -> list[Path]:
        """The files that were written, added or removed since the last call."""
        before, self._stamps = self._stamps, self._look()
        return sorted(
            path for path in before.keys() | self._stamps.keys() if before.get(path) != self._stamps.get(path)
        )

    def _look(self) -> dict[Path, Stamp]:
        found: dict[Path, Stamp] = {}
        for path in islice(self._files(), MOST_FILES):
            try:
                status = path.stat()
            except OSError:
                continue  # it was removed meanwhile
            found[path] = (status.st_mtime_ns, status.st_size)
        return found

    def _files(self) -> Iterator[Path]:
        for where, directories, names in os.walk(self._directory):
            directories[:] = [name for name in directories if is_source(Path(where, name))]
            for name in sorted(names):
                if name.endswith(".py"):
                    yield Path(where, name)


def is_source(directory: Path) -> bool:
    """Whether the directory may have files of the program: it is not hidden, and no virtual environment."""
    name = directory.name
    return not name.startswith(".") and name not in NOT_SOURCE and not (directory / "pyvenv.cfg").exists()


def syntax_error(path: Path) -> SyntaxError | None:
    try:
        compile(path.read_bytes(), str(path), "exec")
    except SyntaxError as error:
        return error
    except (OSError, ValueError):
        pass  # the program will show it
    return None
