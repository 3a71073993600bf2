"""The expected alignment, and the gradient of a loss on it.

With `fused`, and with `wavefront` and `cuda_graph` under torch.export, each is one operator call: see `derivatives`.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

from shared.alignments import ALIGNMENTS
from shared.checks import (
    EXPORT_TEXT,
    CannotDifferentiate,
    check_function,
    check_similarity,
    check_vector,
    is_option,
    unbound,
)
from shared.workload_checks import check_result
from torch_impl import derivatives, functions
from torch_impl.alignment import run_pass
from torch_impl.arguments import from_numpy, see
from torch_impl.dtensors import is_dtensor, on_local_pairs
from torch_impl.kernels.fused import is_plain_call, is_plain_like
from torch_impl.transforms import (
    compiled_or_in_torch_func,
    depends_on_others,
    is_exporting,
    is_traced,
    under_forward_mode,
)

Tensor = torch.Tensor
_OPTIONS = {name: alignment.options for name, alignment in ALIGNMENTS.items()}


def marginals(function: Callable[..., Tensor], similarity: Any, lengths: Any = None, **parameters: Any) -> Tensor:
    """Gradient of each pair's score with respect to its similarity: the match probabilities, the expected alignment.

    Args:
        function: a public function of this package, or anything with its signature, a compiled one included.
        similarity, lengths, parameters: as for that function.

    Returns:
        A tensor of similarity's shape, dtype and device: numbers between 0 and 1 that sum to at most 1 in each
        row and column (of soft_dtw to at least 1). With gradients enabled it can be differentiated again, with respect
        to every argument that requires a gradient; it works inside torch.no_grad.

    Raises:
        TypeError, ValueError: as the function; similarity is not as described.
        RuntimeError: the function's variant cannot be differentiated where it is called.
    """

    def total(matrix: Tensor) -> Tensor:
        scores = function(matrix, lengths, **parameters)
        check_result("function", scores, Tensor)
        return scores.sum()

    check_function(function)
    is_plain = is_plain_call(similarity)
    if not is_plain:
        if is_dtensor(similarity):
            function, parameters = unbound(function, parameters)
            return on_local_pairs(functools.partial(marginals, function), similarity, lengths, **parameters)
        check_similarity(see(similarity))
        similarity = similarity if isinstance(similarity, Tensor) else from_numpy(similarity)
        if _is_transformed(similarity):
            return torch.func.grad(total)(similarity)
    result = try_operators(derivatives.marginals, is_plain, function, similarity, lengths, parameters)
    if result is not None:
        return result
    if is_exporting():
        raise CannotDifferentiate(EXPORT_TEXT)
    # outside of torch.func, autograd does the same and also goes through compiled functions
    differentiable = torch.is_grad_enabled()
    with torch.inference_mode(False), torch.enable_grad():
        leaf = _leaf(similarity, differentiable)
        score = total(leaf)
        create_graph = differentiable and depends_on_others(score, leaf)
        return _gradient(score, leaf, None, create_graph)


def hessian_vector_product(
    function: Callable[..., Tensor], similarity: Any, vector: Any, lengths: Any = None, **parameters: Any
) -> Tensor:
    """Gradient of sum(vector * marginals) with respect to the similarity: each pair's Hessian times the vector.

    This is the gradient of a loss on the marginals, without the marginals themselves.

    Args:
        function: a public function of this package, or anything with its signature, if it can be differentiated
            twice.
        vector: of similarity's shape, the gradient of the loss with respect to the marginals. Nothing outside
            lengths has any influence.
        similarity, lengths, parameters: as for that function.

    Returns:
        A tensor of similarity's shape, dtype and device. With gradients enabled it can be differentiated again, if
        the variant is right to third order.

    Raises:
        TypeError, ValueError: as the function; similarity or vector is not as described.
        RuntimeError: the function's variant cannot be differentiated twice where it is called.
    """
    check_function(function)
    is_plain = is_plain_call(similarity) and is_plain_like(vector, similarity)
    if not is_plain:
        if is_dtensor(similarity):
            function, parameters = unbound(function, parameters)

            def on_this_process(similarity: Tensor, lengths: Any, vector: Any, **parameters: Any) -> Tensor:
                return hessian_vector_product(function, similarity, vector, lengths, **parameters)

            return on_local_pairs(on_this_process, similarity, lengths, vector=vector, **parameters)
        check_similarity(see(similarity))
        check_vector(see(vector), tuple(similarity.shape))
        similarity, vector = (x if isinstance(x, Tensor) else from_numpy(x) for x in (similarity, vector))
        vector = vector.to(similarity)
        if _is_transformed(similarity, vector):

            def loss(matrix: Tensor) -> Tensor:
                return (vector * marginals(function, matrix, lengths, **parameters)).sum()

            return torch.func.grad(loss)(similarity)
    product = functools.partial(derivatives.product, vector)
    result = try_operators(product, is_plain, function, similarity, lengths, parameters)
    if result is not None:
        return result
    differentiable = torch.is_grad_enabled() and not is_exporting()
    with torch.inference_mode(False), torch.enable_grad():
        leaf = _leaf(similarity, differentiable)
        expected = marginals(function, leaf, lengths, **parameters)
        create_graph = differentiable and (vector.requires_grad or depends_on_others(expected, leaf))
        return _gradient(expected, leaf, vector, create_graph)


def _gradient(result: Tensor, leaf: Tensor, weights: Tensor | None, create_graph: bool) -> Tensor:
    """Zeros where the result does not depend on the leaf, as in JAX."""
    if not result.requires_grad:
        return torch.zeros_like(leaf)
    return torch.autograd.grad(result, leaf, weights, create_graph=create_graph, materialize_grads=True)[0]


def _is_transformed(*tensors: Tensor) -> bool:
    """Whether torch.func must take the derivative; in forward mode too, because an autograd leaf has no tangent."""
    return not is_exporting() and (compiled_or_in_torch_func() or under_forward_mode() or any(map(is_traced, tensors)))


def _leaf(similarity: Tensor, differentiable: bool) -> Tensor:
    """The similarity as a leaf to differentiate with respect to, or as part of the caller's graph if there is one."""
    if differentiable and similarity.requires_grad:
        return similarity.view_as(similarity)
    leaf = similarity.detach()
    return (leaf.clone() if leaf.is_inference() else leaf).requires_grad_()


def try_operators(
    pass_function: Callable[..., Tensor],
    is_plain: bool,
    function: Callable[..., Tensor],
    similarity: Tensor,
    lengths: Any,
    arguments: dict[str, Any],
) -> Tensor | None:
    """The result of a pass function, as in `derivatives`, for an alignment; is_plain: as for `run_pass`.

    None if the function is no alignment of this package, if its variant is differentiated by autograd here, or if the
    function lacks an argument, or an option a value: the caller then calls the function, which raises its own error.
    """
    function, arguments = unbound(function, arguments)
    name = getattr(function, "__name__", None)
    if name not in ALIGNMENTS or function is not getattr(functions, name):
        return None
    alignment = ALIGNMENTS[name]
    parameters, options, variant = dict(alignment.parameters), dict(_OPTIONS[name]), "auto"
    for key, value in arguments.items():
        if key in parameters:
            parameters[key] = value
        elif key == "variant":
            variant = value
        elif key in options and is_option(value, alignment.option_values[key]):
            options[key] = value
        else:
            return None
    return run_pass(pass_function, is_plain, name, similarity, lengths, parameters, options, variant)
