"""What `bridge` finds out by trying, in its worker: which tensors are copied, and which transforms are lost."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from shared.bench.cases import Case
from shared.bench.measure.clock import timed
from shared.bench.units import NOTHING
from shared.problems.own_file import first_line

if TYPE_CHECKING:
    from shared.bench.worker.case_runner import CaseRunner

# of the tensors whose memory is looked at: a copy takes a hundred times as long as a call without one
_ROWS, _COLS = 4096, 4096
_TIMES = 5
SHARED, COPIED = "shared", "copied"
# of results in float32
_TOLERANCE = 1e-5


def facts(runner: "CaseRunner", case: Case) -> dict[str, Any]:
    """In a worker with both frameworks. "tensors": of each kind whether JAX gets its memory or a copy, as from_jax
    passes it on a CPU, and by DLPack. "transforms": of each "yes", "wrong", or the error that it raises."""
    torch, jax, bridge = map(import_module, ("torch", "jax", "torch_impl.jax_bridge"))
    return {"tensors": _tensors(torch, jax, bridge, case.device), "transforms": _transforms(torch, jax, bridge)}


def _tensors(torch: Any, jax: Any, bridge: Any, device: str) -> dict[str, list[str]]:
    corner = bridge.from_jax(lambda array: array[0, 0])

    def by_time(tensor: Any) -> str:
        """Of float32, which JAX gets from NumPy on a CPU, and whose address it does not show."""
        if device != "cpu":
            return NOTHING
        calls, copies = zip(*((timed(lambda: corner(tensor)), timed(tensor.clone)) for _ in range(_TIMES)), strict=True)
        return SHARED if min(calls)[0] < min(copies)[0] / 4 else COPIED

    def by_address(tensor: Any, array: Any) -> str:
        return SHARED if tensor.data_ptr() == array.unsafe_buffer_pointer() else COPIED

    single, half = (_kinds(torch, device, dtype) for dtype in (torch.float32, torch.bfloat16))
    found = {kind: [by_time(single[kind]), by_address(half[kind], *bridge.to_jax([half[kind]]))] for kind in half}
    array = jax.jit(lambda array: 2 * array)(*bridge.to_jax([single["contiguous"]]))
    return found | {"a result, a gradient": [NOTHING, by_address(torch.from_dlpack(array), array)]}


def _kinds(torch: Any, device: str, dtype: Any) -> dict[str, Any]:
    skipped = 4 // dtype.itemsize
    whole = torch.ones(_ROWS * _COLS + skipped, dtype=dtype, device=device)
    first = whole[:-skipped].view(_ROWS, _COLS)
    return {
        "contiguous": first,
        "a slice that begins 4 bytes later": whole[skipped:].view(_ROWS, _COLS),
        "transposed": first.T,
        "every second column": first[:, ::2],
    }


def _transforms(torch: Any, jax: Any, bridge: Any) -> dict[str, str]:
    x = torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_()
    direction = torch.linspace(1, 2, 6).reshape(2, 3)

    def grad(y: Any, again: bool = False) -> Any:
        return torch.autograd.grad(y.sum(), x, create_graph=again)[0]

    def forward_mode(f: Callable[..., Any]) -> Any:
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x.detach(), direction)
            return torch.autograd.forward_ad.unpack_dual(f(dual)).tangent

    def exported(f: Callable[..., Any]) -> Any:
        class Model(torch.nn.Module):
            def forward(self, y: Any) -> Any:
                return f(y)

        return torch.export.export(Model(), (x.detach(),)).module()(x.detach())

    trials: dict[str, Callable[[Callable[..., Any]], Any]] = {
        "autograd": lambda f: grad(f(x)),
        "autograd, create_graph=True": lambda f: grad(grad(f(x), again=True) ** 2),
        "torch.no_grad": lambda f: torch.no_grad()(f)(x),
        "torch.utils.checkpoint": lambda f: grad(torch.utils.checkpoint.checkpoint(f, 2 * x, use_reentrant=False)),
        "torch.compile, with a graph break": lambda f: torch.compile(lambda y: f(2 * y), backend="eager")(x),
        "torch.compile, fullgraph=True": lambda f: torch.compile(lambda y: f(2 * y), backend="eager", fullgraph=True)(
            x
        ),
        "torch.func.grad": lambda f: torch.func.grad(lambda y: f(y).sum())(x.detach()),
        "torch.func.vmap": lambda f: torch.func.vmap(f)(x.detach()),
        "torch.func.jvp": lambda f: torch.func.jvp(f, (x.detach(),), (direction,))[1],
        "torch.autograd.forward_ad": forward_mode,
        "torch.jit.trace": lambda f: torch.jit.trace(f, (x.detach(),))(x.detach()),
        "torch.export": exported,
    }
    crossing = bridge.from_jax(lambda y: jax.numpy.sin(y) * y)
    found = {name: _tried(trial, crossing, lambda y: torch.sin(y) * y) for name, trial in trials.items()}
    mapped = bridge.from_jax(jax.vmap(jax.grad(lambda y: (jax.numpy.sin(y) * y).sum())))
    found["jax.vmap, jax.grad before from_jax"] = _tried(lambda f: f(x), mapped, lambda y: torch.sin(y) + y * y.cos())
    return found


def _tried(trial: Callable[..., Any], crossing: Callable[..., Any], expected: Callable[..., Any]) -> str:
    """Whether a transform gives with the JAX function what it gives with PyTorch's own."""
    try:
        result = trial(crossing)
    except Exception as error:
        text = first_line(str(error)) or type(error).__name__
        return f"raises: {text.partition(';')[0]}"
    return "yes" if bool((result - trial(expected)).abs().max() < _TOLERANCE) else "wrong"
