"""The graphs of the variants: JAX's jaxpr and compiled text, PyTorch's captured graph and the operators it calls."""

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import torch
import torch._dynamo
from frameworks import FRAMEWORKS
from torch.utils._python_dispatch import TorchDispatchMode

from torch_impl.compiler import compiled


def matrix(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def equations(jaxpr: Any) -> Iterator[Any]:
    """Every equation of a jaxpr and of the jaxprs inside it."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in inner_jaxprs(equation):
            yield from equations(inner)


def inner_jaxprs(equation: Any) -> Iterator[Any]:
    if equation.primitive.name == "pairs":  # which JAX does not look into before it compiles
        both = equation.invars, equation.outvars
        arrays, results = ([jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in own] for own in both)
        yield jax.make_jaxpr(lambda *own: tuple(equation.params["function"](results, *own)))(*arrays).jaxpr
    for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
        if hasattr(value, "eqns"):
            yield getattr(value, "jaxpr", value)


def traced(variant: str, *shape: int, problem: str = "smith_waterman") -> Any:
    function = FRAMEWORKS["jax"].backend.function(problem, variant)
    return jax.make_jaxpr(function)(matrix(*shape)).jaxpr


def named(name: str, jaxpr: Any) -> list[Any]:
    return [equation for equation in equations(jaxpr) if equation.primitive.name == name]


@functools.cache
def captured(variant: str, *shape: int, problem: str = "smith_waterman") -> torch.fx.GraphModule:
    """The one graph of a variant, without compiling it."""
    graphs = []

    def keep(module: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        graphs.append(module)
        return module.forward

    torch._dynamo.reset()  # what once ended in an error, as other tests want it to, is not traced again before
    function = FRAMEWORKS["torch"].backend.function(problem, variant)
    # a string in the signature, but a callable serves as well
    compiled(function, backend=keep)(torch.from_numpy(matrix(*shape)))  # pyright: ignore[reportArgumentType]
    (graph,) = graphs
    return graph


def nodes(graph: torch.fx.GraphModule, operator: str) -> list[torch.fx.Node]:
    """The calls of a higher-order operator ("scan", "cond") or of a function by its name, inner graphs included."""
    modules = [module for module in graph.modules() if isinstance(module, torch.fx.GraphModule)]
    every = [node for module in modules for node in module.graph.nodes]
    calls = [node for node in every if node.op in ("call_function", "call_method")]
    return [node for node in calls if operator in (node.target, getattr(node.target, "__name__", None))]


def native_calls(function: Callable[..., Any], *arguments: Any) -> list[str]:
    """The names of the native kernels that a function calls when XLA has compiled it."""
    text = jax.jit(function).lower(*arguments).compile().as_text() or ""
    return re.findall(r'custom_call_target="jax_torch_alignment_(\w+)"', text)


class Operators(TorchDispatchMode):
    """Inside, the project's operators that PyTorch calls are noted."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "smooth_alignment":
            self.called.append(func._opname)
        return func(*args, **(kwargs or {}))
