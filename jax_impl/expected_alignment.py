"""The expected alignment, and the gradient of a loss on it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jax_impl.arguments import see
from shared.checks import check_function, check_similarity, check_vector
from shared.workload_checks import check_result

Array = jax.Array


def marginals(function: Callable[..., Array], similarity: Any, lengths: Any = None, **parameters: Any) -> Array:
    """Gradient of each pair's score with respect to its similarity: the match probabilities, the expected alignment.

    Args:
        function: a public function of this package, or anything with its signature, a jitted one included.
        similarity, lengths, parameters: as for that function.

    Returns:
        An array of similarity's shape and dtype: numbers between 0 and 1 that sum to at most 1 in each row and
        column (soft_dtw: at least 1). It can be differentiated again, with respect to every differentiable argument.

    Raises:
        TypeError, ValueError: as the function; similarity is not as described.
    """

    check_function(function)
    check_similarity(see(similarity))

    def total(matrix: Any) -> Array:
        scores = function(matrix, lengths, **parameters)
        check_result("function", scores, Array)
        return scores.sum()

    return _gradient(total, similarity)


def hessian_vector_product(
    function: Callable[..., Array], similarity: Any, vector: Any, lengths: Any = None, **parameters: Any
) -> Array:
    """Gradient of sum(vector * marginals) with respect to the similarity: each pair's Hessian times the vector.

    This is the gradient of a loss on the marginals, without the marginals themselves.

    Args:
        function: a public function of this package, or anything with its signature, if it can be differentiated
            twice.
        vector: of similarity's shape, the gradient of the loss with respect to the marginals. Nothing outside
            lengths has any influence.
        similarity, lengths, parameters: as for that function.

    Returns:
        An array of similarity's shape and dtype. It can be differentiated again by the variants that are right to
        third order.

    Raises:
        TypeError, ValueError: as the function; similarity or vector is not as described.
        RuntimeError: the function's variant cannot be differentiated twice where it is called.
    """
    check_function(function)
    check_similarity(see(similarity))
    check_vector(see(vector), tuple(similarity.shape))

    def loss(matrix: Any) -> Array:
        return (jnp.asarray(vector, matrix.dtype) * marginals(function, matrix, lengths, **parameters)).sum()

    return _gradient(loss, similarity)


def _gradient(loss: Callable[[Any], Array], similarity: Any) -> Array:
    """That of a loss (), on each device of jax.shard_map that of its own loss.

    Where the similarity is the same on all devices and the loss is not, as gaps or lengths differ, jax.grad would give
    the sum over the devices.
    """
    if jax.sharding.get_abstract_mesh().manual_axes:
        similarity = jnp.asarray(similarity)
        types = jax.eval_shape(loss, similarity), jax.typeof(similarity)
        # with check_vma=False they say nothing, and jax.grad does not sum
        of_loss, of_matrix = (getattr(type_.manual_axis_type, "varying", frozenset[str]()) for type_ in types)
        similarity = jax.lax.pcast(similarity, tuple(sorted(of_loss - of_matrix)), to="varying")
    return jax.grad(loss)(similarity)
