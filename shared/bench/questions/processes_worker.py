"""The worker of `processes`: a process that measures by itself, or process 0 of several that measure together.

    python -m shared.bench.questions.processes_worker PLACE FRAMEWORK DEVICE THREADS MEMORY FOLDER CONNECTION

PLACE is a `Place` as JSON. Process 0 starts the others with the same command, as far as the user's launcher has not,
and gives them each command of its parent, so that all execute it at the same time, each on its shard.
"""

import functools
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.bench.cases import Case
from shared.bench.questions.processes_group import Group, Place
from shared.bench.worker.main import end_with_parent, limit_cores

if TYPE_CHECKING:
    from shared.bench.questions.processes_runner import OnShard

# in the environment of process 0 of a launcher's: the name of the group
GROUP = "PROCESSES_GROUP"
MODULE = "shared.bench.questions.processes_worker"


def command(place: Place) -> tuple[str, ...]:
    """The program of a worker at this place, without the arguments that every worker has."""
    return (sys.executable, "-W", "ignore", "-m", MODULE, json.dumps(asdict(place)))


def main() -> None:
    """Execute commands until the parent ends, or process 0 says so."""
    place = Place(**json.loads(sys.argv[1]))
    place = replace(place, name=os.environ.get(GROUP, place.name))
    framework, device, threads, memory, folder, descriptor = arguments = sys.argv[2:]
    end_with_parent()
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # its store warns of every wait that ends without an answer
    children: dict[int, tuple[subprocess.Popen[bytes], Path]] = {}
    if place.count > 1 and not place.is_launched and not place.index:
        place = replace(place, address=f"127.0.0.1:{_free_port()}")
        children = _start_others(place, arguments)
    if place.is_launched and not place.index:
        _claim(place, Path(folder))
    limit_cores(int(threads), place.first_core)
    # only now: NumPy and the framework start threads on import
    from shared.bench.questions.processes_runner import Leader, OnShard, follow
    from shared.bench.worker.commands import serve

    serving = (framework, device, int(threads), float(memory), Path(folder))
    if place.count == 1:
        serve(Connection(int(descriptor)), *serving, executor=functools.partial(OnShard, place, None))
        return
    backend = importlib.import_module(f"{framework}_impl.backend")
    backend.set_threads(int(threads))
    group = Group(backend, place)
    for index, (child, log) in children.items():
        threading.Thread(target=_watch, args=(group, index, child, log), daemon=True).start()
    if not place.index:
        serve(Connection(int(descriptor)), *serving, executor=functools.partial(Leader, place, group))
    elif place.is_launched:
        serve(Connection(int(descriptor)), *serving, executor=functools.partial(OnShard, place, group))
    else:
        follow(OnShard(place, group, backend, Path(folder), lambda *_, **__: None))


def follow_others(runner: "OnShard", case: Case) -> dict[str, Any]:
    """In a worker that a launcher's process has started: follow process 0, with a sign of life every few seconds."""
    from shared.bench.questions.processes_runner import follow

    tell, runner.send = runner.send, lambda *_, **__: None  # one thread at a time writes to the parent
    assert runner.group is not None, "a launched process has joined others"
    runner.group.on_sign = lambda: tell("step")
    return follow(runner)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def _start_others(place: Place, arguments: Sequence[str]) -> dict[int, tuple[subprocess.Popen[bytes], Path]]:
    """Processes 1, 2, …, each on cores of its own, and what they print."""
    threads, folder, found = int(arguments[2]), Path(arguments[4]), {}
    for index in range(1, place.count):
        own = replace(place, index=index, first_core=index * threads)
        log = folder / f"{place.framework}-{os.getpid()}-{index}.log"
        with log.open("wb") as file:
            found[index] = (
                subprocess.Popen([*command(own), *arguments], stdin=subprocess.DEVNULL, stdout=file, stderr=file),
                log,
            )
    return found


def _watch(group: Group, index: int, child: "subprocess.Popen[bytes]", log: Path) -> None:
    """End this process if another one ends before it."""
    code = child.wait()
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    printed = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    last = f": {printed[-1][:200]}" if code >= 0 and printed else ""
    group.end(f"{group.place.title(index)} {how}{last}")


def _claim(place: Place, folder: Path) -> None:
    """The launcher's processes join once: end if they have, and this is process 0 anew."""
    try:
        (folder / f"joined {place.name}").touch(exist_ok=False)
    except FileExistsError:
        sys.exit(f"{place.title(0)} has ended before, and the others cannot join again")


if __name__ == "__main__":
    main()
