"""A function of tensors as a CUDA graph: its kernels are captured once, by hand, and then launched as one.

A loop of thousands of small kernels waits for Python, which launches one every few microseconds. A graph holds
them all: launching it costs as much as launching a few, whatever the loop does. It always reads and writes the same
memory, so arguments are copied in and results out, and it is valid for one set of shapes.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

Tensor = torch.Tensor

# each holds the memory of a whole call
MOST_GRAPHS = 8
# warm-up calls before the capture: the first ones also copy tables to the device and load kernels
_REHEARSALS = 2


class Graph:
    """A function's kernels, captured on copies of these tensors. The function may not wait for the device."""

    def __init__(self, function: Callable[..., Any], tensors: tuple[Tensor, ...], reads: Any = None) -> None:
        """reads: what it reads beside the tensors, which must live as long as the graph."""
        self._reads = reads
        device = tensors[0].device
        with torch.cuda.device(device), torch.inference_mode(False), torch.no_grad():
            self.inputs = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in tensors]
            self.load(tensors)
            here, beside = torch.cuda.current_stream(), torch.cuda.Stream()
            beside.wait_stream(here)
            with torch.cuda.stream(beside):
                for _ in range(_REHEARSALS):
                    function(*self.inputs)
            here.wait_stream(beside)
            self._graph = torch.cuda.CUDAGraph()
            # other threads may call CUDA during this capture
            with torch.cuda.graph(self._graph, stream=beside, capture_error_mode="thread_local"):
                self.results = function(*self.inputs)

    def load(self, tensors: tuple[Tensor, ...]) -> None:
        """Copy the arguments to the memory that the graph reads."""
        for input_, tensor in zip(self.inputs, tensors, strict=True):
            input_.copy_(tensor)

    def launch(self) -> None:
        """Recompute `results` from `inputs`."""
        self._graph.replay()


_lock = threading.Lock()
_graphs: OrderedDict[Any, Graph] = OrderedDict()  # least recently used first


def graph_of(function: Callable[..., Any], tensors: tuple[Tensor, ...], key: Any, reads: Any = None) -> Graph:
    """The cached or a new graph of a function for these shapes. Hold the lock, `using()`, until its results are copied.

    key: names the function and what else it depends on beside the tensors. Streams may run concurrently, so each has
    its own graphs. reads: as in Graph.
    """
    stream = torch.cuda.current_stream(tensors[0].device).cuda_stream
    whole = (key, stream, *((tensor.shape, tensor.dtype, tensor.device) for tensor in tensors))
    if whole in _graphs:
        _graphs.move_to_end(whole)
        return _graphs[whole]
    while len(_graphs) >= MOST_GRAPHS:
        _graphs.popitem(last=False)
    made = None
    try:
        made = Graph(function, tensors, reads)
    except RuntimeError as error:
        if not _graphs or not is_out_of_memory(error):
            raise
    if made is None:  # only now: the error keeps the first attempt's memory alive
        forget()
        made = Graph(function, tensors, reads)
    _graphs[whole] = made
    return made


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this error says that a GPU's memory, or the part that may be used, was too small."""
    # the driver's error, as where a graph is made, is no OutOfMemoryError
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "out of memory" in str(error).lower()
    )


def using() -> threading.Lock:
    """A lock to hold while a graph is loaded, launched and read: all callers share its memory."""
    return _lock


def forget() -> None:
    """Drop all graphs, and with them their memory."""
    _graphs.clear()


_read_by_others: dict[int, Any] = {}


def keep_if_captured(reads: Any) -> bool:
    """Whether the caller captures a graph of its own, whose lifetime is unknown: what it reads is then kept alive."""
    if not torch.cuda.is_current_stream_capturing():
        return False
    _read_by_others[id(reads)] = reads
    return True


def replayed(function: Callable[..., Any], tensors: tuple[Tensor, ...], key: Any, reads: Any = None) -> Any:
    """function(*tensors) by a graph: a new tensor or tuple of tensors. Other arguments as for graph_of."""
    if keep_if_captured(reads):  # it becomes part of the caller's graph
        return function(*tensors)
    with using():
        graph = graph_of(function, tensors, key, reads)
        graph.load(tensors)
        graph.launch()
        results = graph.results
        return results.clone() if isinstance(results, Tensor) else tuple(result.clone() for result in results)
