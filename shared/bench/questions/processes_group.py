"""Processes of one framework that execute the same commands, and what they tell each other meanwhile.

They join by the framework's own runtime (`backend.join`), whose store of keys and values carries commands and answers.
Process 0 gives the commands, the others follow. Every process says in the store that it is alive; one that notices that
another has fallen silent says so and ends, because a collective operation would wait for that one for ever.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, NoReturn

from shared.bench.cases import FRAMEWORKS

# how often a process says that it is alive, and for how long one may be silent; documented in docs/questions.md
SIGN_SECONDS, SILENT_SECONDS = 5.0, 20.0
# longest time until all have joined; those of a launcher may begin minutes after one another
JOIN_SECONDS, LAUNCHED_JOIN_SECONDS = 60.0, 240.0
# the last command of a group: another group follows, or none
AGAIN, LAST = "again", "last"
# a store is asked again after so long, so that another thread can use it too
_SLICE_SECONDS = 1.0


@dataclass(frozen=True)
class Place:
    """One process of a group."""

    framework: str
    index: int = 0
    count: int = 1
    address: str = ""  # HOST:PORT of process 0's store
    name: str = "group"  # of the group, where one follows the other at an address
    first_core: int = 0  # of those that are usable
    is_launched: bool = False  # whether the user's launcher starts the processes, and not process 0

    def title(self, index: int) -> str:
        """How messages name a process."""
        return f"{FRAMEWORKS[self.framework]} process {index} of {self.count}"


class Group:
    """This process's side of a group."""

    def __init__(self, backend: Any, place: Place) -> None:
        """Join; returns when all have joined. Ends the process where that takes too long."""
        self.place, self._backend, self._number = place, backend, 0
        seconds = LAUNCHED_JOIN_SECONDS if place.is_launched else JOIN_SECONDS
        text = f"{place.title(place.index)} waited {seconds:g} s for the others to join"
        patience = threading.Timer(seconds, self.end, [text])
        patience.daemon = True
        patience.start()
        # the frameworks wait longer: JAX would end without a word, PyTorch with many
        backend.join(place.index, place.count, place.address, place.name, 2 * seconds)
        patience.cancel()
        self.on_sign: Callable[[], None] = lambda: None  # called each time that this process says that it is alive
        self._left = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def broadcast(self, value: Any = None) -> Any:
        """The value of process 0, in every process: plain JSON."""
        self._number += 1
        key = f"told {self._number}"
        if self.place.index:
            return json.loads(self._wait_for(key))
        self._backend.put(key, json.dumps(value, default=_plain))
        return value

    def gather(self, value: Any) -> list[Any]:
        """In process 0 the value of each, its own as it is, the others' as plain JSON; elsewhere nothing."""
        self._number += 1
        if self.place.index:
            self._backend.put(f"answer {self._number} of {self.place.index}", json.dumps(value, default=_plain))
            return []
        others = range(1, self.place.count)
        return [value, *(json.loads(self._wait_for(f"answer {self._number} of {each}")) for each in others)]

    def barrier(self) -> None:
        """Wait until every process is here."""
        self.gather(None)
        self.broadcast()

    def leave(self) -> None:
        """The last thing that a group does."""
        self._left.set()
        self._watcher.join()
        self._backend.leave()

    def end(self, text: str) -> NoReturn:
        """End this process: its parent reports the text, the last line that it printed."""
        print(text, file=sys.stderr, flush=True)
        os._exit(1)

    def _wait_for(self, key: str) -> str:
        while (text := self._backend.get(key, _SLICE_SECONDS)) is None:
            pass  # `_watch` ends the process if it waits in vain
        return text

    def _watch(self) -> None:
        """Say that this process is alive, and see that the others do."""
        place, signs = self.place, 0
        heard = {index: (None, time.monotonic()) for index in range(place.count) if index != place.index}
        while not self._left.wait(SIGN_SECONDS):
            signs += 1
            try:
                self.on_sign()
                self._backend.put(f"alive {place.index}", str(signs))
                for index, (before, at) in heard.items():
                    now = self._backend.get(f"alive {index}", _SLICE_SECONDS)
                    if now != before:
                        heard[index] = now, time.monotonic()
                    elif time.monotonic() - at > SILENT_SECONDS and not self._left.is_set():
                        self.end(f"{place.title(index)} was silent for {SILENT_SECONDS:g} s")
            except Exception:
                if not self._left.is_set():  # the store is gone, and so is the process that keeps it
                    self.end(f"{place.title(0)} has ended")


def _plain(value: Any) -> Any:
    """A dataclass as JSON has it."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"expected plain JSON or a dataclass, got {type(value).__name__}")
