"""The capture of CUDA graphs, on a machine without a GPU: with a stand-in for the graph, and for the device.

The stand-in keeps what a graph keeps: memory of its own that arguments are copied into and results lie in. That what
is captured neither waits for the device nor brings numbers to it is seen on a device without memory.
"""

import contextlib
import functools
import gc
import importlib
import weakref

import numpy as np
import pytest
import torch
from frameworks import FRAMEWORKS, PROBLEMS
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import torch_impl
from shared.alignments import ALIGNMENTS, recurrence_of
from torch_impl import cuda_graph, diagonal_layout, linear_regression, wavefront
from torch_impl.alignment import absent_on
from torch_impl.cuda_graph import MOST_GRAPHS


class Stream:
    cuda_stream = 7


class Graph:
    """Computes on the CPU, in memory of its own."""

    made: list["Graph"]
    full = False

    def __init__(self, function, tensors, reads=None):
        if Graph.full and Graph.made:
            Graph.full = False
            raise torch.OutOfMemoryError("out of memory")
        self._function, self.launches, self.reads = function, 0, reads
        self.given = [torch.full_like(tensor, 5) for tensor in tensors]
        self.results = function(*self.given)
        Graph.made.append(self)

    def load(self, tensors):
        for own, tensor in zip(self.given, tensors, strict=True):
            own.copy_(tensor)

    def launch(self):
        self.launches += 1
        mine = [self.results] if isinstance(self.results, torch.Tensor) else self.results
        new = self._function(*self.given)
        for own, value in zip(mine, [new] if isinstance(new, torch.Tensor) else new, strict=True):
            own.copy_(value)


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    Graph.made, Graph.full = [], False
    cuda_graph.forget()
    monkeypatch.setattr(cuda_graph, "Graph", Graph)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    yield
    cuda_graph.forget()


def twice(x):
    return 2 * x


def test_a_graph_is_made_once_for_a_shape_and_launched_each_time():
    for value in (1.0, 2.0, 3.0):
        assert cuda_graph.replayed(twice, (torch.full((2,), value),), key="twice").tolist() == [2 * value] * 2
    (graph,) = Graph.made
    assert graph.launches == 3


@pytest.mark.parametrize("other", ["shape", "dtype", "key", "stream"])
def test_what_a_graph_cannot_do_another_one_does(other, monkeypatch):
    cuda_graph.replayed(twice, (torch.ones(2),), key="one")
    if other == "stream":
        monkeypatch.setattr(Stream, "cuda_stream", 8)
    given = torch.ones(3 if other == "shape" else 2, dtype=torch.float64 if other == "dtype" else torch.float32)
    cuda_graph.replayed(twice, (given,), key="two" if other == "key" else "one")
    assert len(Graph.made) == 2


def test_results_are_the_caller_s_own():
    first = cuda_graph.replayed(twice, (torch.ones(2),), key=0)
    second = cuda_graph.replayed(twice, (torch.zeros(2),), key=0)
    assert first.tolist() == [2, 2] and second.tolist() == [0, 0]
    pair = cuda_graph.replayed(lambda x: (x, -x), (torch.ones(1),), key=1)
    cuda_graph.replayed(lambda x: (x, -x), (torch.zeros(1),), key=1)
    assert [float(value) for value in pair] == [1, -1]


def test_only_the_last_ones_are_kept():
    for count in range(1, MOST_GRAPHS + 2):
        cuda_graph.replayed(twice, (torch.ones(count),), key=0)
    assert len(Graph.made) == MOST_GRAPHS + 1
    cuda_graph.replayed(twice, (torch.ones(2),), key=0)  # the oldest that is left
    cuda_graph.replayed(twice, (torch.ones(1),), key=0)  # it had to go, and the next oldest goes now
    assert len(Graph.made) == MOST_GRAPHS + 2
    cuda_graph.replayed(twice, (torch.ones(2),), key=0)
    assert len(Graph.made) == MOST_GRAPHS + 2


def test_graphs_that_are_not_in_use_make_room():
    cuda_graph.replayed(twice, (torch.ones(1),), key=0)
    Graph.full = True
    assert cuda_graph.replayed(twice, (torch.ones(2),), key=0).tolist() == [2, 2]
    cuda_graph.replayed(twice, (torch.ones(1),), key=0)  # gone
    assert len(Graph.made) == 3


def test_a_first_try_without_enough_memory_is_let_go_before_the_second(monkeypatch):
    cuda_graph.replayed(twice, (torch.ones(1),), key=0)
    held = []

    class Large:
        pass

    def first_try(self, function, tensors, reads=None):
        taken = Large()
        held.append(weakref.ref(taken))
        raise torch.OutOfMemoryError("out of memory")

    def second_try(function, tensors, reads):
        gc.collect()
        assert held[0]() is None
        return Graph(function, tensors, reads)

    tries = iter([functools.partial(first_try, None), second_try])
    monkeypatch.setattr(cuda_graph, "Graph", lambda *given: next(tries)(*given))
    assert cuda_graph.replayed(twice, (torch.ones(2),), key=0).tolist() == [2, 2]


def test_without_others_to_drop_memory_that_is_too_small_is_an_error(monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(cuda_graph, "Graph", full)
    with pytest.raises(torch.OutOfMemoryError):
        cuda_graph.replayed(twice, (torch.ones(1),), key=0)


def test_inside_a_capture_of_the_caller_s_there_is_no_graph(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert cuda_graph.replayed(twice, (torch.ones(1),), key=0).tolist() == [2]
    assert not Graph.made


# the wavefront


class Watch(TorchDispatchMode):
    """Which operators run, and the kinds of devices that their tensors are on."""

    def __init__(self):
        super().__init__()
        self.seen: set[tuple[str, tuple[str, ...]]] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
        self.seen.add((str(func), tuple(sorted({tensor.device.type for tensor in tensors}))))
        return result


class Calls(TorchFunctionMode):
    """Calls that make a tensor of numbers of the host; on the device without memory no operator is seen of them."""

    def __init__(self):
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in ("tensor", "as_tensor", "new_tensor", "from_numpy"):
            self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


# what would wait for a device, or for the host; an array of no bytes on the CPU is Memory's, and goes nowhere
WAITS = ("item", "local_scalar", "lift_fresh", "nonzero", "unique", "masked_select", "equal.default")


@contextlib.contextmanager
def staying_on_the_device():
    """Inside, nothing waits for the device without memory, or brings numbers to it."""
    with Watch() as watch, Calls() as calls:
        yield
    assert calls.seen == []
    assert {devices for name, devices in watch.seen if name != "aten.empty.memory_format"} <= {("meta",), ()}
    assert not [name for name, _ in watch.seen for word in WAITS if word in name]


@pytest.mark.parametrize("pass_name", ["score", "gradients", "tangents"])
@pytest.mark.parametrize(
    ("problem", "by_position"),
    [
        ("smith_waterman", False),
        ("needleman_wunsch", True),
        pytest.param("smith_waterman_affine", False, marks=pytest.mark.slow),
        pytest.param("smith_waterman_affine", True, marks=pytest.mark.slow),
    ],
)
def test_nothing_of_the_wavefront_waits_for_the_device_or_brings_numbers_to_it(problem, by_position, pass_name):
    options = PROBLEMS[problem].options[-1]
    s, values = torch.empty(3, 5, 7, device="meta"), torch.empty(3, len(ALIGNMENTS[problem].parameters), device="meta")
    lengths = torch.empty(3, 2, dtype=torch.int64, device="meta")
    names = ALIGNMENTS[problem].gaps if by_position else ()
    gaps = (s,) * len(names)
    tensors = (s, lengths, values, *((s, values, *gaps) if pass_name == "tangents" else ()), *gaps)
    others = (recurrence_of(problem, options, names).name, *((True,) if pass_name == "gradients" else ()))
    function = getattr(wavefront, f"_{pass_name}")
    diagonal_layout.alone(function, tensors, *others)  # brings the tables there
    with staying_on_the_device():
        diagonal_layout.alone(function, tensors, *others)


def test_the_watch_sees_what_waits():
    with Watch() as watch, Calls() as calls:
        torch.ones(2, device="meta").new_tensor([1.0, 2.0])
        torch.ones(1).to("meta")
        torch.ones(1).item()
    assert calls.seen == ["new_tensor"]
    assert any("cpu" in devices and "meta" in devices for _, devices in watch.seen)
    assert any("local_scalar" in name for name, _ in watch.seen)


def test_a_graph_of_the_wavefront_keeps_the_tables_that_it_reads():
    s, values = torch.empty(2, 4, 3, device="meta"), torch.empty(2, 2, device="meta")
    given = (s, values.long(), values)
    assert diagonal_layout.alone(wavefront._score, given, "smith_waterman(end=any)", graph=True).shape == (2,)
    (graph,) = Graph.made
    assert graph.reads is diagonal_layout.layout_of(4, 3, 4, 3, s.device)
    # another problem is another graph, though the shapes are the same
    diagonal_layout.alone(wavefront._score, given, "smith_waterman(end=match)", graph=True)
    diagonal_layout.alone(wavefront._gradients, given, "smith_waterman(end=match)", False, graph=True)
    assert len(Graph.made) == 3


@pytest.mark.parametrize("problem", PROBLEMS)
def test_nothing_of_a_call_brings_numbers_to_the_device(problem):
    s = torch.empty(3, 5, 7, device="meta")
    lengths = torch.empty(3, 2, dtype=torch.int64, device="meta")
    with staying_on_the_device():
        getattr(torch_impl, problem)(s, variant="wavefront")
        getattr(torch_impl, problem)(s, lengths, variant="wavefront")


def test_what_the_caller_s_own_graph_reads_stays(monkeypatch):
    s, values = torch.empty(2, 4, 3, device="meta"), torch.empty(2, 2, device="meta")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(cuda_graph, "_read_by_others", {})
    for graph in (False, True):
        diagonal_layout.alone(wavefront._score, (s, values.long(), values), "smith_waterman(end=any)", graph=graph)
    assert list(cuda_graph._read_by_others.values()) == [diagonal_layout.layout_of(4, 3, 4, 3, s.device)]
    assert not Graph.made


# fused, in the caller's own graph


def test_nothing_of_fused_waits_for_the_device_or_brings_numbers_to_it(monkeypatch):
    calls = pytest.importorskip("torch_impl.kernels.triton_binding", exc_type=ImportError)
    for module in ("alignment", "kernels.fused", "best_alignment"):
        monkeypatch.setattr(importlib.import_module(f"torch_impl.{module}"), "is_on_gpu", lambda _: True)
    launched = []
    monkeypatch.setattr(calls, "_launch", lambda launch, *_: launched.append(launch.kernel.name))
    s, vector = torch.empty(2, 3, 9, 7, device="meta")
    lengths, gap = torch.empty(3, 2, dtype=torch.int32, device="meta"), torch.empty((), device="meta").requires_grad_()
    own = functools.partial(torch_impl.smith_waterman, temperature=0.5)

    def curve():
        leaf = s.clone().requires_grad_()
        slope, _ = torch.autograd.grad(own(leaf, lengths, gap=gap).sum(), (leaf, gap), create_graph=True)
        return torch.autograd.grad((slope**2).sum(), leaf)

    exact = ["forward_kernel", "backward_kernel"]
    odds = ["odds_forward_kernel", "odds_backward_kernel", *exact]
    for call, names in (
        (lambda: own(s), ["odds_forward_kernel", "forward_kernel"]),
        (lambda: torch_impl.marginals(own, s, lengths), odds),
        (lambda: torch_impl.hessian_vector_product(own, s, vector, lengths, gap=-2.0), odds),
        (curve, exact * 2),
        (lambda: torch_impl.best_alignment(torch_impl.smith_waterman, s, lengths), ["best_kernel"]),
    ):
        launched.clear()
        with staying_on_the_device():
            call()
        assert launched == names


# the variant


def test_the_variant_cuda_graph_is_absent_on_a_cpu_and_in_jax(monkeypatch):
    with pytest.raises(ValueError, match=r"^variant 'cuda_graph' is absent here: it launches a CUDA graph"):
        torch_impl.smith_waterman(torch.ones(2, 2), variant="cuda_graph")
    assert "cuda_graph" not in torch_impl.variants("smith_waterman")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert "cuda_graph" in torch_impl.variants("smith_waterman")
    assert "cuda_graph" not in absent_on("cuda")

    with pytest.raises(ValueError, match="XLA_FLAGS=--xla_gpu_enable_command_buffer"):
        FRAMEWORKS["jax"].package.smith_waterman(np.ones((2, 2), np.float32), variant="cuda_graph")
    assert "cuda_graph" in FRAMEWORKS["jax"].backend.absent_on("cuda")


# a training loop


@pytest.mark.parametrize("epochs", [0, 3, 250])
def test_a_graph_of_steps_is_launched_until_a_few_are_left(epochs, monkeypatch):
    monkeypatch.setattr(linear_regression, "_steps", functools.partial(eager_steps, linear_regression.TURN))
    monkeypatch.setattr(linear_regression, "_compiled_step", linear_regression._step)
    x = torch.linspace(0, 1, 20, dtype=torch.float64)
    y = 2 * x + 1
    start = (torch.tensor(1.0).double(), torch.tensor(0.0).double())
    rate = torch.tensor(0.01, dtype=torch.float64)
    got = linear_regression._launched_loop(*start, x, y, rate, epochs)
    wanted = eager_steps(epochs, *start, x, y, rate)
    assert [float(value) for value in got] == pytest.approx([float(value) for value in wanted], abs=1e-14)
    assert sum(graph.launches for graph in Graph.made) == epochs // linear_regression.GRAPH_STEPS


def eager_steps(count, a, b, x, y, rate):
    return linear_regression._python_loop(linear_regression._step, a, b, x, y, rate, count)
