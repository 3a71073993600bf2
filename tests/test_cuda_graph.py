"""The capture of CUDA graphs, on a machine without a GPU: with a stand-in for the graph, and for the device.

The stand-in keeps what a graph keeps: memory of its own that arguments are copied into and results lie in. That what
is captured neither waits for the device nor brings numbers to it is seen on a device without memory.
"""

import functools
import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from frameworks import FRAMEWORKS, PROBLEMS
from gpu_programs import take_for_a_gpu
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
    """Computes on the CPU, in memory of its own; raises an error where memory is full."""

    made: list["Graph"]
    is_full: bool
    first_try: Any  # a call that gives what a try without enough memory has taken, while that is alive

    def __init__(self, function, tensors, reads=None):
        if Graph.is_full:
            Graph.is_full, taken = not Graph.made, Stream()
            Graph.first_try = weakref.ref(taken)
            raise torch.OutOfMemoryError("out of memory")
        gc.collect()
        assert Graph.first_try() is None
        self._function, self.launches, self.reads = function, 0, reads
        self.given = [torch.full_like(tensor, 5) for tensor in tensors]
        self.results = function(*self.given)
        Graph.made.append(self)

    def load(self, tensors):
        for input_, tensor in zip(self.given, tensors, strict=True):
            input_.copy_(tensor)

    def launch(self):
        self.launches += 1
        for result, value in zip(tree_leaves(self.results), tree_leaves(self._function(*self.given)), strict=True):
            result.copy_(value)


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    Graph.made, Graph.is_full, Graph.first_try = [], False, lambda: None
    cuda_graph.forget()
    monkeypatch.setattr(cuda_graph, "Graph", Graph)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    gc.freeze()  # a graph is made after garbage is collected: spare the collector the objects that exist already
    yield
    gc.unfreeze()
    cuda_graph.forget()


def twice(x):
    return 2 * x, -2 * x


def replay(value=1.0, count=2, key="twice", dtype=torch.float32):
    return cuda_graph.replayed(twice, (torch.full((count,), value, dtype=dtype),), key=key)


def test_a_graph_is_made_once_launched_each_time_and_gives_results_of_the_caller_s_own():
    results = [replay(value) for value in (1.0, 2.0, 3.0)]
    assert [[part.tolist() for part in pair] for pair in results] == [
        [[2.0 * value] * 2, [-2.0 * value] * 2] for value in (1, 2, 3)
    ]
    (graph,) = Graph.made
    assert graph.launches == 3
    single = [cuda_graph.replayed(torch.negative, (torch.full((), value),), key=0) for value in (1.0, 2.0)]
    assert single == [-1, -2]


@pytest.mark.parametrize("other", [{"count": 3}, {"dtype": torch.float64}, {"key": "other"}, {}])
def test_a_graph_is_for_one_shape_type_function_and_stream(other, monkeypatch):
    replay()
    if not other:
        monkeypatch.setattr(Stream, "cuda_stream", 8)
    replay(**other)
    assert len(Graph.made) == 2


@pytest.mark.slow
def test_the_graphs_used_last_are_kept():
    for count in range(1, MOST_GRAPHS + 2):
        replay(count=count)
    assert len(Graph.made) == MOST_GRAPHS + 1
    replay(count=2)  # the oldest that is left
    replay(count=1)  # it had to go, and the next oldest goes now
    assert len(Graph.made) == MOST_GRAPHS + 2
    replay(count=2)
    assert len(Graph.made) == MOST_GRAPHS + 2


def test_graphs_that_are_not_in_use_and_a_first_try_make_room():
    replay(count=1)
    Graph.is_full = True
    assert replay()[0].tolist() == [2, 2]
    replay(count=1)  # gone
    assert len(Graph.made) == 3


def test_too_little_memory_is_an_error_where_no_graph_can_be_dropped():
    Graph.is_full = True
    with pytest.raises(torch.OutOfMemoryError):
        replay()


# what would wait for a device, or for the host
WAITS = ("item", "local_scalar", "lift_fresh", "nonzero", "unique", "masked_select", "equal.default")


class Operators(TorchDispatchMode):
    """Inside, no operator waits for the device without memory, or takes numbers there."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
        # an array of no bytes on the CPU is Memory's, and goes nowhere
        assert str(func) == "aten.empty.memory_format" or all(tensor.device.type == "meta" for tensor in tensors)
        assert not [word for word in WAITS if word in str(func)]
        return result


class Calls(TorchFunctionMode):
    """Inside, no call makes a tensor of numbers of the host, of which no operator is seen on that device."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        assert getattr(func, "__name__", "") not in ("tensor", "as_tensor", "new_tensor", "from_numpy")
        return func(*args, **(kwargs or {}))


def on_no_device(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


@pytest.mark.parametrize(
    ("problem", "by_position"),
    [
        ("smith_waterman", False),
        ("needleman_wunsch", True),
        pytest.param("smith_waterman_affine", False, marks=pytest.mark.slow),
        pytest.param("smith_waterman_affine", True, marks=pytest.mark.slow),
    ],
)
def test_nothing_of_the_wavefront_waits_for_the_device_or_brings_numbers_to_it(problem, by_position):
    names = ALIGNMENTS[problem].gaps if by_position else ()
    recurrence = recurrence_of(problem, PROBLEMS[problem].options[0 if by_position else -1], names).name
    s, values = on_no_device(3, 5, 7), on_no_device(3, len(ALIGNMENTS[problem].parameters))
    gaps, arguments = (s,) * len(names), (s, on_no_device(3, 2, dtype=torch.int64), values)
    for function, tensors, *other_arguments in (
        (wavefront._score, (*arguments, *gaps), recurrence),
        (wavefront._gradients, (*arguments, *gaps), recurrence, True),
        (wavefront._tangents, (*arguments, s, values, *gaps, *gaps), recurrence),
    ):
        diagonal_layout.run_single_threaded(function, tensors, *other_arguments)  # brings the tables there
        with Operators(), Calls():
            diagonal_layout.run_single_threaded(function, tensors, *other_arguments)


@pytest.mark.parametrize("variant", ["wavefront", "fused"])
def test_nothing_of_a_call_waits_for_the_device_or_brings_numbers_to_it(variant, monkeypatch):
    launched = []
    if variant == "fused":
        calls = pytest.importorskip("torch_impl.kernels.triton_binding", exc_type=ImportError)
        take_for_a_gpu(monkeypatch)
        monkeypatch.setattr(calls, "_launch", lambda launch, *_: launched.append(launch.kernel.name))
    s, lengths = on_no_device(3, 9, 7), on_no_device(3, 2, dtype=torch.int32)
    function = functools.partial(torch_impl.smith_waterman, variant=variant, temperature=0.5)

    def curve():
        leaf, gap = s.clone().requires_grad_(), on_no_device().requires_grad_()
        slope, _ = torch.autograd.grad(function(leaf, lengths, gap=gap).sum(), (leaf, gap), create_graph=True)
        return torch.autograd.grad((slope**2).sum(), leaf)

    exact = ["forward_kernel", "backward_kernel"]
    blocks = ["block_forward_kernel", "block_backward_kernel", *exact]
    for call, names in (
        (lambda: function(s), blocks[::2]),
        (lambda: torch_impl.marginals(function, s, lengths), blocks),
        (lambda: torch_impl.hessian_vector_product(function, s, s, lengths, gap=-2.0), blocks),
        (curve, exact * 2),
        (lambda: torch_impl.best_alignment(torch_impl.smith_waterman, s, lengths), ["best_kernel"]),
    ):
        if variant == "fused" or names != ["best_kernel"]:
            launched.clear()
            with Operators(), Calls():
                call()
            assert launched == (names if variant == "fused" else [])


def test_the_watch_sees_what_waits():
    for wait in (
        lambda: on_no_device(2).new_tensor([1.0, 2.0]),
        lambda: torch.ones(1).to("meta"),
        lambda: torch.ones(()).item(),
    ):
        with pytest.raises(AssertionError), Operators(), Calls():
            wait()


@pytest.mark.parametrize("is_captured", [False, True])
def test_a_graph_of_the_wavefront_or_its_caller_keeps_the_tables_that_it_reads(is_captured, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: is_captured)
    monkeypatch.setattr(cuda_graph, "_read_by_others", {})
    arguments = on_no_device(2, 4, 3), on_no_device(2, 2, dtype=torch.int64), on_no_device(2, 2)
    tables = diagonal_layout.layout_of(4, 3, 4, 3, arguments[0].device)
    diagonal_layout.run_single_threaded(
        wavefront._score, arguments, "smith_waterman(end=any)"
    )  # without a graph of its own
    assert list(cuda_graph._read_by_others.values()) == [tables] * is_captured
    cuda_graph._read_by_others.clear()
    # another problem or pass is another graph, though the shapes are the same
    for function, recurrence, *other_arguments in (
        (wavefront._score, "smith_waterman(end=any)"),
        (wavefront._score, "smith_waterman(end=match)"),
        (wavefront._gradients, "smith_waterman(end=match)", False),
    ):
        diagonal_layout.run_single_threaded(function, arguments, recurrence, *other_arguments, graph=True)
    assert [graph.reads is tables for graph in Graph.made] == [True] * (0 if is_captured else 3)
    assert list(cuda_graph._read_by_others.values()) == [tables] * is_captured


def test_the_variant_cuda_graph_is_absent_on_a_cpu_and_in_jax(monkeypatch):
    for framework, reason in (("torch", "it launches a CUDA graph"), ("jax", "XLA_FLAGS=--xla_gpu_enable_command_buf")):
        with pytest.raises(ValueError, match=f"^variant 'cuda_graph' is absent here: .*{reason}"):
            FRAMEWORKS[framework].package.smith_waterman(np.ones((2, 2), np.float32), variant="cuda_graph")
    assert "cuda_graph" in FRAMEWORKS["jax"].backend.absent_on("cuda")
    assert "cuda_graph" not in torch_impl.variants("smith_waterman")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert "cuda_graph" in torch_impl.variants("smith_waterman")
    assert "cuda_graph" not in absent_on("cuda")


@pytest.mark.parametrize("epochs", [0, 3, 250])
def test_a_graph_of_steps_is_launched_until_a_few_are_left(epochs, monkeypatch):
    def eager_steps(count, a, b, x, y, rate):
        return linear_regression._python_loop(linear_regression._step, a, b, x, y, rate, count)

    monkeypatch.setattr(
        linear_regression, "_steps", functools.partial(eager_steps, linear_regression.STEPS_PER_ITERATION)
    )
    monkeypatch.setattr(linear_regression, "_compiled_step", linear_regression._step)
    x = torch.linspace(0, 1, 20, dtype=torch.float64)
    a, b, rate = torch.tensor([1.0, 0.0, 0.01], dtype=torch.float64)
    arguments = a, b, x, 2 * x + 1, rate
    torch.testing.assert_close(
        linear_regression._launched_loop(*arguments, epochs), eager_steps(epochs, *arguments), rtol=0, atol=1e-14
    )
    assert sum(graph.launches for graph in Graph.made) == epochs // linear_regression.GRAPH_STEPS
