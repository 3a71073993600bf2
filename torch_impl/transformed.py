"""What the transforms of PyTorch make of an alignment. The same names as in `jax_impl.transformed`, where both have
them.

Each takes a public function f(similarity, lengths, **parameters) and a `Given` of tensors. total is the weighted sum of
the scores, sum(cotangent * scores), as a function of the similarity.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint
from torch import func

from shared.transforms import Given
from torch_impl.compiler import compiled
from torch_impl.expected_alignment import marginals
from torch_impl.recurrences import Tensor

Function = Callable[..., Tensor]
BACKEND = "inductor"  # of torch.compile


def transformed(name: str, f: Function, given: Given) -> Tensor:
    """Apply a transform to f, and return its result as a tensor."""
    return TRANSFORMED[name](f, given)


def _scores(f: Function, given: Given) -> Tensor:
    return f(given.similarity, given.lengths, **given.parameters)


def _of_similarity(f: Function, given: Given) -> Function:
    return lambda similarity: f(similarity, given.lengths, **given.parameters)


def _total(f: Function, given: Given) -> Function:
    return lambda similarity: (given.cotangent * f(similarity, given.lengths, **given.parameters)).sum()


def _autograd(order: int, f: Function, given: Given) -> Tensor:
    """A derivative of this order, each but the first along the direction."""
    leaf = given.similarity.detach().requires_grad_()
    loss = _total(f, given)(leaf)
    for _ in range(order - 1):
        (derivative,) = torch.autograd.grad(loss, leaf, create_graph=True)
        loss = (given.direction * derivative).sum()
    return torch.autograd.grad(loss, leaf)[0]


def _gradient(f: Function, given: Given) -> Tensor:
    return func.grad(_total(f, given))(given.similarity)


def _marginals(f: Function, given: Given) -> Tensor:
    return marginals(f, given.similarity, given.lengths, **given.parameters)


def _second(f: Function, given: Given) -> Tensor:
    gradient = func.grad(_total(f, given))
    return func.grad(lambda similarity: (given.direction * gradient(similarity)).sum())(given.similarity)


def _jvp(f: Function, given: Given) -> Tensor:
    return func.jvp(f, (given.similarity,), (given.direction,))[1]


def _linearize(f: Function, given: Given) -> Tensor:
    return func.linearize(_of_similarity(f, given), given.similarity)[1](given.direction)


def _jacobian(transform: Callable[[Function], Function], f: Function, given: Given) -> Tensor:
    return torch.tensordot(given.cotangent, transform(_of_similarity(f, given))(given.similarity), 1)


def _hessian(transform: Callable[[Function], Function], f: Function, given: Given) -> Tensor:
    return torch.tensordot(transform(_total(f, given))(given.similarity), given.direction, 3)


def _jacrev_twice(f: Function) -> Function:
    return func.jacrev(func.jacrev(f))


def _batched_gradients(f: Function, given: Given) -> Tensor:
    leaf = given.similarity.detach().requires_grad_()
    scores = _of_similarity(f, given)(leaf)
    (jacobian,) = torch.autograd.grad(scores, leaf, torch.ones_like(scores).diag(), is_grads_batched=True)
    return torch.tensordot(given.cotangent, jacobian, 1)


def _hessian_by_older_vmap(f: Function, given: Given) -> Tensor:
    hessian: Any = torch.autograd.functional.hessian(_total(f, given), given.similarity, vectorize=True)
    return torch.tensordot(hessian, given.direction, 3)


def _checkpoint(f: Function) -> Function:
    def call(*arguments: Any, **parameters: Any) -> Tensor:
        return torch.utils.checkpoint.checkpoint(f, *arguments, use_reentrant=False, **parameters)

    return call


def _compiled(f: Function) -> Function:
    return compiled(f, backend=BACKEND)


def _compiled_marginals(f: Function, given: Given) -> Tensor:
    return torch.compile(lambda own: _marginals(f, own), fullgraph=True, backend=BACKEND)(given)


def _rounded(f: Function, given: Given) -> Tensor:
    return _scores(f, given._replace(similarity=given.similarity.bfloat16())).float()


def _in_autocast(f: Function, given: Given) -> Tensor:
    with torch.autocast(given.similarity.device.type, torch.bfloat16):
        return _rounded(f, given)


def _export(asked: Callable[[Function, Given], Tensor]) -> Callable[[Function, Given], Tensor]:
    def call(f: Function, given: Given) -> Tensor:
        class Module(torch.nn.Module):
            def forward(self, *own: Any) -> Tensor:
                return asked(f, Given(*own))

        arguments = tuple(given)
        return torch.export.export(Module(), arguments).module()(*arguments)

    return call


TRANSFORMED: dict[str, Callable[[Function, Given], Tensor]] = {
    "gradient": lambda f, given: _autograd(1, f, given),
    "functional gradient": _gradient,
    "vmap": lambda f, given: func.vmap(lambda own: _scores(f, own))(given),
    "vmap of gradient": lambda f, given: func.vmap(lambda own: _gradient(f, own))(given),
    "second derivative": lambda f, given: _autograd(2, f, given),
    "functional second derivative": _second,
    "third derivative": lambda f, given: _autograd(3, f, given),
    "forward mode": lambda f, given: _jvp(_of_similarity(f, given), given),
    "forward over reverse": lambda f, given: _jvp(func.grad(_total(f, given)), given),
    "linearize": _linearize,
    "jacfwd": lambda f, given: _jacobian(func.jacfwd, f, given),
    "jacrev": lambda f, given: _jacobian(func.jacrev, f, given),
    "gradients batched by the older vmap": _batched_gradients,
    "Hessian": lambda f, given: _hessian(func.hessian, f, given),
    "Hessian by reverse mode": lambda f, given: _hessian(_jacrev_twice, f, given),
    "Hessian by the older vmap": _hessian_by_older_vmap,
    "checkpoint": lambda f, given: _autograd(1, _checkpoint(f), given),
    "bfloat16": _rounded,
    "autocast": _in_autocast,
    "export": _export(_scores),
    "export of marginals": _export(_marginals),
    "compiled": lambda f, given: _scores(_compiled(f), given),
    "gradient of compiled": lambda f, given: _autograd(1, _compiled(f), given),
    "compiled alone": lambda f, given: _scores(torch.compile(f, fullgraph=True, backend=BACKEND), given),
    "compiled marginals": _compiled_marginals,
}
