"""A function of tensors as a CUDA graph: its kernels are captured once, by hand, and then launched as one.

A loop of thousands of small kernels waits for Python, which launches one every few microseconds. A graph knows them
all: launching it costs as much as launching a few, whatever the loop does. It always reads and writes the same memory,
so arguments are copied in and results out, and it holds for one set of shapes.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

Tensor = torch.Tensor

# each keeps the memory of a whole call
MOST_KEPT = 8
# what is done for the first time does more than what is captured: tables are brought to the device, and kernels loaded
_REHEARSALS = 2


class Graph:
    """A function's kernels, captured on copies of these tensors. The function may not wait for the device."""

    def __init__(self, function: Callable[..., Any], tensors: tuple[Tensor, ...], reads: Any = None) -> None:
        """reads: what it reads beside the tensors, and must not go away before it."""
        self._reads = reads
        device = tensors[0].device
        with torch.cuda.device(device), torch.inference_mode(False), torch.no_grad():
            self.given = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in tensors]
            self.load(tensors)
            here, beside = torch.cuda.current_stream(), torch.cuda.Stream()
            beside.wait_stream(here)
            with torch.cuda.stream(beside):
                for _ in range(_REHEARSALS):
                    function(*self.given)
            here.wait_stream(beside)
            self._graph = torch.cuda.CUDAGraph()
            # what other threads do meanwhile is not this capture's business
            with torch.cuda.graph(self._graph, stream=beside, capture_error_mode="thread_local"):
                self.results = function(*self.given)

    def load(self, tensors: tuple[Tensor, ...]) -> None:
        """Copy arguments to where the graph reads them."""
        for own, tensor in zip(self.given, tensors, strict=True):
            own.copy_(tensor)

    def launch(self) -> None:
        """Compute `results` again from what is given."""
        self._graph.replay()


_lock = threading.Lock()
_kept: OrderedDict[Any, Graph] = OrderedDict()  # the one that was used last is the last


def graph_of(function: Callable[..., Any], tensors: tuple[Tensor, ...], key: Any, reads: Any = None) -> Graph:
    """The graph of a function for these shapes: an old one, or a new one. Hold `using` until its results are copied.

    key: what the function depends on beside the tensors. What runs on different streams may run at the same time, so
    each has its own. reads: as in Graph.
    """
    stream = torch.cuda.current_stream(tensors[0].device).cuda_stream
    whole = (key, stream, *((tensor.shape, tensor.dtype, tensor.device) for tensor in tensors))
    if whole in _kept:
        _kept.move_to_end(whole)
        return _kept[whole]
    while len(_kept) >= MOST_KEPT:
        _kept.popitem(last=False)
    made = None
    try:
        made = Graph(function, tensors, reads)
    except torch.OutOfMemoryError:
        if not _kept:
            raise
    if made is None:  # only now: the error holds what the first try had taken
        forget()
        made = Graph(function, tensors, reads)
    _kept[whole] = made
    return made


def using() -> threading.Lock:
    """To be held while a graph is loaded, launched and read: it has one memory for all callers."""
    return _lock


def forget() -> None:
    """Drop all graphs, and with them their memory."""
    _kept.clear()


_read_by_others: dict[int, Any] = {}


def keep_if_captured(reads: Any) -> bool:
    """Whether the caller captures a graph of its own. What that reads then stays for good: nobody says for how long."""
    if not torch.cuda.is_current_stream_capturing():
        return False
    _read_by_others[id(reads)] = reads
    return True


def replayed(function: Callable[..., Any], tensors: tuple[Tensor, ...], key: Any, reads: Any = None) -> Any:
    """function(*tensors) by a graph: a tensor, or a tuple of tensors, that are the caller's own. The rest as above."""
    if keep_if_captured(reads):  # the caller captures a larger one
        return function(*tensors)
    with using():
        graph = graph_of(function, tensors, key, reads)
        graph.load(tensors)
        graph.launch()
        results = graph.results
        return results.clone() if isinstance(results, Tensor) else tuple(result.clone() for result in results)
