"""The bounded queue of chunks from the broker's loop to the writer's thread.

If the disk is too slow, the oldest chunk is dropped. The recorder then states which rows are missing.
"""

from collections import deque

from polydomo.journal.recording.chunk import Chunk

Loss = tuple[int, int, int, str]  # run, first and last sequence number, reason

TOO_SLOW = "the disk did not keep up"


class ChunkQueue:
    def __init__(self, run: int, max_chunks: int) -> None:
        self.chunks: deque[Chunk] = deque()  # oldest first; the writer takes them from its thread
        self.restate: deque[tuple[int, int, int]] = deque()  # losses (run, first, last) stated by rows that were lost
        self.dropped = 0  # rows, in all
        self.max_chunks = max_chunks
        self._run = run
        self._gap = (0, -1)  # first and last of the rows that were dropped one after the other

    def is_overfull(self) -> bool:
        return len(self.chunks) > self.max_chunks

    def memory(self) -> int:
        return sum(chunk.memory() for chunk in list(self.chunks))

    def drop_oldest(self) -> list[Loss]:
        """Drops a chunk. Returns the losses that new rows must state.

        While the disk is full, the dropped rows are one growing range. If each dropped chunk were stated on its own, the rows that state
        the losses would be dropped and stated again until there were no other rows.
        """
        try:
            chunk = self.chunks.popleft()
        except IndexError:  # the writer has taken it in the meantime
            return []
        self.dropped += chunk.last - chunk.first + 1
        if chunk.first != self._gap[1] + 1:
            self._gap = (chunk.first, chunk.last)
        self._gap = first, last = self._gap[0], chunk.last
        losses = [(self._run, first, last, TOO_SLOW)]
        for step in chunk.steps:
            # A loss that a dropped row stated must be stated again, unless the new range contains it.
            if step.covers_run and not (
                step.covers_run == self._run and first <= step.covers_first and step.covers_last <= last
            ):
                losses.append((step.covers_run, step.covers_first, step.covers_last, step.reason))
        return losses
