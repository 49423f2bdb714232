"""``polydomo`` in processes of its own that do not load its modules anew: each is forked from one process that has them loaded.

Starting Python and importing a command takes 0.1 to 0.3 s of processor time, hundreds of times in a run of the tests. ``Forked`` is a
``subprocess.Popen`` of a command of polydomo, in all that a test can see from outside: process id, pipes, signals, exit status. The
process that forks has one thread and runs nothing else; it ends with the process of the tests.

It waits longer for a broker than a user's command does (``LONG``). ``FRESH`` in a command's variables starts it as Python does.

``FRESH_PROCESSES=1`` in the environment turns it off (`make test-long`), and so does a variable that decides how Python starts.
"""

import array
import atexit
import gc
import io
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import traceback
from contextlib import suppress
from functools import cache
from importlib import import_module
from types import FrameType, ModuleType
from typing import Any

FRESH: dict[str, Any] = {"_POLYDOMO_FRESH": "1"}
POLYDOMO = [sys.executable, "-m", "polydomo"]
LOADED = (
    "polydomo.client.blocking",
    "polydomo.server.server",
    "polydomo.stores.sqlite",
    "polydomo.worker.blocking",
    "rich.live",
    "rich.table",
    "uvloop",
)  # besides the modules of commands; none that starts a thread, such as pyarrow
# Commands that tests expect to succeed wait this long for a broker, since a busy machine lets it wait for many seconds.
LONG = 60.0
LONG_LIMITS = (
    "CONNECT_TIME",
    "DBP_ANSWER_TIME",
    "DBP_PATIENCE",
    "DCP_PATIENCE",
    "EMQP_PATIENCE",
    "MDP_PATIENCE",
    "MDX_PATIENCE",
    "SCHEMA_TIME",
    "STORE_OPENING",
)
LONG_TIMES = {
    "broker.doctor": "ANSWER",
    "calls.call": "HINT_TIME",
    "inspect.browse": "LOOK_TIME",
    "inspect.watch": "WATCH_TIME",
    "journal.search": "FLUSH_TIME",
}  # of modules of commands
MAX_REQUEST = 150_000  # bytes of words and variables in one datagram


def _of_loading(variables: dict[str, str]) -> dict[str, str]:
    """What is read when Python starts, or when the modules are loaded: a shell asks for completions by a variable."""
    return {name: value for name, value in variables.items() if name.startswith(("PYTHON", "_POLYDOMO"))}


class Forks:
    """The process that forks, as seen from the tests."""

    def __init__(self) -> None:
        self.variables = _of_loading(dict(os.environ))
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
            )

    def fork(self, request: bytes, files: list[int]) -> tuple[int, socket.socket]:
        """The id of a new process, and a socket that gets its exit status when it ends."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [*files, theirs.fileno()]))
            self._control.sendmsg([request], [rights])
        return int.from_bytes(ours.recv(4), "big"), ours


@cache
def forks() -> Forks:
    return Forks()


class Forked(subprocess.Popen[bytes]):
    """A command of polydomo: ``Forked([*POLYDOMO, "services"], stdout=PIPE)``."""

    def _execute_child(self, args: Any, *more: Any) -> None:
        """``more`` is what CPython's method gets: the directory and the variables, and six file descriptors, -1 for the caller's own."""
        directory, given, pipes = more[4], more[5], more[9:15]
        variables = dict(os.environ if given is None else given)
        words = [str(word) for word in args[len(POLYDOMO) :]]
        request = json.dumps([words, str(directory or os.getcwd()), variables]).encode()
        self._exit: socket.socket | None = None
        if (
            os.environ.get("FRESH_PROCESSES")
            or len(request) > MAX_REQUEST
            or _of_loading(variables) != forks().variables
        ):
            super()._execute_child(args, *more)  # type: ignore[misc]
            return
        files = [pipe if pipe != -1 else own for own, pipe in enumerate((pipes[0], pipes[3], pipes[5]))]
        self.pid, self._exit = forks().fork(request, files)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._exit is None:
            found: tuple[int, int] = super()._try_wait(wait_flags)  # type: ignore[misc]
            return found
        with suppress(BlockingIOError):
            status = self._exit.recv(4, socket.MSG_DONTWAIT if wait_flags & os.WNOHANG else 0)
            self._exit.close()
            return self.pid, int.from_bytes(status, "big")
        return 0, 0

    def _internal_poll(self, **deadstate: Any) -> int | None:
        if self._exit is None:
            known: int | None = super()._internal_poll(**deadstate)  # type: ignore[misc]
            return known
        lock: Any = self._waitpid_lock  # type: ignore[attr-defined]
        if self.returncode is None and lock.acquire(False):
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid:
                        self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                lock.release()
        return self.returncode


# --- the process that forks -------------------------------------------------------------------------------------------------


def load() -> None:
    from polydomo import limits

    for name in LONG_LIMITS:  # before other modules copy them
        lengthen(limits, name)
    from polydomo.cli import loading, main

    assert main
    for name, module in loading.MODULES.items():
        if not module.startswith("pipeline."):
            loading.find(name)
    for module in LOADED:
        import_module(module)
    for module, name in LONG_TIMES.items():
        lengthen(import_module(f"polydomo.cli.{module}"), name)


def lengthen(module: ModuleType, name: str) -> None:
    assert getattr(module, name) < LONG
    setattr(module, name, LONG)


def reap(exits: dict[int, socket.socket]) -> None:
    while exits:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with exits.pop(pid) as end, suppress(OSError):  # nobody may wait for it
            end.send(status.to_bytes(4, "big"))


def serve(control: socket.socket) -> None:
    """Returns in a process that has been forked."""
    woken, wakes = socket.socketpair()
    for end in (woken, wakes):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, nothing)
    signal.set_wakeup_fd(wakes.fileno())
    selector = selectors.DefaultSelector()
    selector.register(woken, selectors.EVENT_READ)
    selector.register(control, selectors.EVENT_READ)
    exits: dict[int, socket.socket] = {}
    while True:
        for key, _ in selector.select():
            if key.fileobj is woken:
                woken.recv(4096)
                reap(exits)
                continue
            request, files, _, _ = socket.recv_fds(control, 2 * MAX_REQUEST, 4)
            if not request:
                os._exit(0)  # the process of the tests has ended
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                selector.close()
                for own in (control, woken, wakes, *exits.values()):
                    own.close()
                os.close(files[3])
                words, directory, variables = json.loads(request)
                become(words, directory, variables, files[:3])
                return
            exits[pid] = socket.socket(fileno=files[3])
            for file in files[:3]:
                os.close(file)
            exits[pid].send(pid.to_bytes(4, "big"))
            reap(exits)


def nothing(number: int, frame: FrameType | None) -> None:
    pass


def become(words: list[str], directory: str, variables: dict[str, str], files: list[int]) -> None:
    """Makes this process what ``python -m polydomo`` would be."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(directory)
    through = bool(variables.get("PYTHONUNBUFFERED"))
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = stream(1, "strict", through)
    sys.stderr = stream(2, "backslashreplace", through)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
    main: Any = import_module("polydomo.__main__")
    sys.path[0] = directory
    sys.argv = [str(main.__file__), *words]
    sys.modules["__main__"] = main


def stream(file: int, errors: str, through: bool) -> io.TextIOWrapper:
    """As Python opens its standard output (1) and its standard error (2), which always writes whole lines."""
    buffer = open(file, "wb", closefd=False)  # noqa: SIM115
    lines = file == 2 or os.isatty(file)
    return io.TextIOWrapper(buffer, errors=errors, line_buffering=lines, write_through=through)


def end(status: object) -> None:
    """What Python does at its end, but for taking apart every object: most of them are shared with the process that forked."""
    if isinstance(status, str):
        print(status, file=sys.stderr)
    import_module("threading")._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status if isinstance(status, int) else int(status is not None))


if __name__ == "__main__":
    load()
    gc.collect()
    gc.freeze()  # processes that are forked do not look at what they share, and so do not copy it
    serve(socket.socket(fileno=int(sys.argv[1])))
    from polydomo.cli.start import main as polydomo

    try:
        polydomo()
    except SystemExit as ended:
        end(ended.code)
    except BaseException:
        traceback.print_exc()
        end(1)
    end(0)
