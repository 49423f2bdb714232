"""Kills the programs that ``polydomo work`` and ``polydomo bench`` started if the command itself is killed.

A process that receives SIGKILL cannot stop its child programs. So it starts a small shell, and every program writes its process id to
that shell through a pipe before it runs. The pipe closes when the process ends, for whatever reason; the shell then kills the process
groups that are still running.
"""

import os
import subprocess

GUARD = """
trap '' HUP INT TERM
running=
while read -r change pid; do
  left=
  for each in $running; do
    case $change in
      -) [ "$each" = "$pid" ] || left="$left $each" ;;
      '?') kill -0 "$each" && left="$left $each" ;;
      *) left="$left $each" ;;
    esac
  done
  [ "$change" != + ] || left="$left $pid"
  running=$left
done
for each in $running; do kill -9 "-$each" || kill -9 "$each"; done
"""


class ChildGuard:
    """Tracks the programs that one process runs."""

    def __init__(self) -> None:
        self._shell: subprocess.Popen[bytes] | None = None
        self._pipe = -1

    def start(self) -> None:
        """Starts the shell, once. Raises OSError if it cannot be started."""
        if self._shell is None:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", GUARD],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C at the worker's terminal must not stop the shell
            )
            assert self._shell.stdin is not None
            self._pipe = self._shell.stdin.fileno()

    def enter(self) -> None:
        """Called in the child process between fork and exec. From here on, the program does not outlive the worker."""
        os.write(self._pipe, b"+ %d\n" % os.getpid())

    def ended(self, pid: int) -> None:
        """The program has ended, so its process id may be reused."""
        self._say(b"- %d\n" % pid)

    def failed(self) -> None:
        """A program could not be executed and its process id is unknown: the shell drops every process that no longer exists."""
        self._say(b"? 0\n")

    def _say(self, line: bytes) -> None:
        try:
            os.write(self._pipe, line)
        except OSError:
            pass  # the shell never started, or was killed

    def close(self) -> None:
        """Called on a normal exit of the worker."""
        if self._shell is not None and self._shell.stdin is not None:
            self._shell.stdin.close()
            self._shell.wait()
            self._shell = None
