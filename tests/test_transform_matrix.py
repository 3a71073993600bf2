"""Which transforms work: every entry of the table in docs/transforms.md, for all alignments, against the reference.

OUTCOMES is the table as data: "yes", with the variants excepted, or "raises: " and what the RuntimeError says. JAX is
always called under jax.jit, where a scan is compiled once. What is said of `auto` holds for fused, which it is on a
CPU, and for wavefront, which it is elsewhere.
"""

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
import torch
from frameworks import BY_HAND, PROBLEMS, QUICK, ragged

import jax_impl
import jax_impl.backend
import torch_impl
from shared import reference
from torch_impl.compiler import compiled

PAGE = Path(__file__).parents[1] / "docs" / "transforms.md"
COMPILE = "`jax.jit`; `torch_impl.compiler.compiled`"
GRAD = "gradient: `jax.grad`; autograd"
FUNCTIONAL_GRAD = "gradient: `jax.grad`; `torch.func.grad`"
VMAP = "`jax.vmap`; `torch.func.vmap`"
GRAD_OF_GRAD = "gradient of a gradient: `jax.grad`; autograd with `create_graph=True`"
FUNCTIONAL_GRAD_OF_GRAD = "gradient of a gradient: `jax.grad`; `torch.func.grad`"
VMAP_OF_GRAD = "`jax.vmap` of `jax.grad`; `torch.func.vmap` of `torch.func.grad`"
JVP = "`jax.jvp`; `torch.func.jvp`"
JVP_OF_GRAD = "`jax.jvp` of `jax.grad`; `torch.func.jvp` of `torch.func.grad`"
THIRD = "a third derivative: `jax.grad`; autograd with `create_graph=True`"
EXPORT = "the score exported: `jax.export`; `torch.export`"
EXPORT_OF_GRAD = "the marginals exported: `jax.export`; `torch.export`"

COLUMNS = {
    ("jax", "auto"): "JAX, `auto`",
    ("torch", "auto"): "PyTorch, `auto`",
    ("torch", "scans"): "PyTorch, variants that scan",
}
NO_TORCH_FUNC = "raises: cannot be differentiated by torch.func"
SCANS = {
    COMPILE: "yes",
    GRAD: "yes",
    FUNCTIONAL_GRAD: NO_TORCH_FUNC,
    VMAP: "yes, except `batch_loop`",
    GRAD_OF_GRAD: "raises: is right to first order only",
    FUNCTIONAL_GRAD_OF_GRAD: NO_TORCH_FUNC,
    VMAP_OF_GRAD: NO_TORCH_FUNC,
    JVP: NO_TORCH_FUNC,
    JVP_OF_GRAD: NO_TORCH_FUNC,
    THIRD: "raises: is right to first order only",
    EXPORT: "yes, except `vmap`",
    EXPORT_OF_GRAD: "raises: torch.export cannot trace this gradient",
}
AUTO = dict.fromkeys(SCANS, "yes") | {THIRD: "raises: is right to second order only"}
BY_COLUMN = {
    ("jax", "auto"): AUTO | dict.fromkeys((EXPORT, EXPORT_OF_GRAD), "yes, except `fused`"),
    ("torch", "auto"): AUTO,
    ("torch", "scans"): SCANS,
}
# (framework, "auto" or "scans", transform) -> what happens
OUTCOMES = {(*column, transform): outcome for column in COLUMNS for transform, outcome in BY_COLUMN[column].items()}
# a scan is traced for seconds: two problems, each by one of these variants
SCANNING = {"smith_waterman": "vmap", "needleman_wunsch": "scan_select"}


def variants_shown(framework: str, variants: str, problem: str) -> tuple[str, ...]:
    """Those that show what a column says of a problem. XLA takes seconds to compile a wavefront's derivatives."""
    if variants == "scans":
        return (SCANNING[problem],) if problem in SCANNING else ()
    return ("fused",) if framework == "jax" and problem != "needleman_wunsch" else BY_HAND


SHOWN = [
    (*key, problem, variant)
    for key, outcome in OUTCOMES.items()
    for problem in PROBLEMS
    for variant in variants_shown(*key[:2], problem)
    if f"`{variant}`" not in outcome
]


class Case(NamedTuple):
    """A ragged batch with poison in its padding and parameters per pair; and what the reference makes of it."""

    arguments: tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]  # similarity, lengths, parameters
    direction: np.ndarray  # for forward mode
    scores: np.ndarray
    marginals: np.ndarray
    slopes: np.ndarray  # of the scores along the direction
    second: np.ndarray  # gradient of sum(marginals^2)
    products: np.ndarray  # of the marginals' derivative with the direction


@functools.cache
def case(problem: str) -> Case:
    similarity, lengths, parameters, _ = ragged(2, 3, problem=problem)
    assert lengths is not None
    direction = np.random.default_rng(2).normal(size=similarity.shape)
    scores = getattr(reference, problem)(similarity, lengths, **parameters)
    marginals = reference.gradients(problem, similarity, lengths, **parameters)["similarity"]
    second = reference.hessian_vector_product(problem, similarity, 2 * marginals, lengths, **parameters)["similarity"]
    slopes = (marginals * direction).sum(axis=(1, 2))
    products = reference.hessian_vector_product(problem, similarity, direction, lengths, **parameters)["similarity"]
    return Case((similarity, lengths, parameters), direction, scores, marginals, slopes, second, products)


# transform -> what of a Case it should give
GIVES = {
    COMPILE: "scores",
    GRAD: "marginals",
    FUNCTIONAL_GRAD: "marginals",
    VMAP: "scores",
    GRAD_OF_GRAD: "second",
    FUNCTIONAL_GRAD_OF_GRAD: "second",
    VMAP_OF_GRAD: "marginals",
    JVP: "slopes",
    JVP_OF_GRAD: "products",
    EXPORT: "scores",
    EXPORT_OF_GRAD: "marginals",
}


def squares_of(gradient: Callable[..., Any]) -> Callable[..., Any]:
    """A loss on a gradient."""
    return lambda *arguments: (gradient(*arguments) ** 2).sum()


@functools.cache
def by_jax(transform: str, problem: str, variant: str) -> np.ndarray:
    def score(matrix: Any, lengths: Any, parameters: dict[str, Any]) -> jax.Array:
        return getattr(jax_impl, problem)(matrix, lengths, **parameters, variant=variant)

    def total(*arguments: Any) -> jax.Array:
        return score(*arguments).sum()

    def pushed(matrix: Any, *others: Any) -> jax.Array:
        return jax.jvp(lambda own: score(own, *others), (matrix,), (case(problem).direction,))[1]

    def pushed_gradient(matrix: Any, *others: Any) -> jax.Array:
        gradient = lambda own: jax.grad(total)(own, *others)  # noqa: E731
        return jax.jvp(gradient, (matrix,), (case(problem).direction,))[1]

    transformed = {
        COMPILE: score,
        GRAD: jax.grad(total),
        VMAP: jax.vmap(score),
        GRAD_OF_GRAD: jax.grad(squares_of(jax.grad(total))),
        VMAP_OF_GRAD: jax.vmap(jax.grad(score)),
        JVP: pushed,
        JVP_OF_GRAD: pushed_gradient,
        THIRD: jax.grad(squares_of(jax.grad(squares_of(jax.grad(total))))),
        EXPORT: score,
        EXPORT_OF_GRAD: jax.grad(total),
    }[transform]
    arguments = case(problem).arguments
    with jax_impl.backend.precision("float64"):
        if transform in (EXPORT, EXPORT_OF_GRAD):
            transformed = jax.export.export(jax.jit(transformed))(*arguments).call
        return np.asarray(jax.jit(transformed, compiler_options=QUICK)(*arguments))


def exported(function: Callable[..., torch.Tensor], arguments: tuple) -> Callable[..., torch.Tensor]:
    """What torch.export makes of a module that returns the function of the arguments."""

    class Module(torch.nn.Module):
        def forward(self, *given: Any) -> torch.Tensor:
            return function(*given)

    return torch.export.export(Module(), arguments).module()


def by_torch(transform: str, problem: str, variant: str) -> np.ndarray:
    similarity, lengths, parameters = case(problem).arguments
    own = {name: torch.tensor(value) for name, value in parameters.items()}
    arguments = torch.tensor(similarity), torch.tensor(lengths), own
    function = functools.partial(getattr(torch_impl, problem), variant=variant)

    def score(matrix: torch.Tensor, lengths: torch.Tensor, parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        return function(matrix, lengths, **parameters)

    def total(*arguments: Any) -> torch.Tensor:
        return score(*arguments).sum()

    def autograd(matrix: torch.Tensor, *others: Any) -> torch.Tensor:
        leaf = matrix.requires_grad_()
        return torch.autograd.grad(total(leaf, *others), leaf)[0]

    def autograd_again(times: int, matrix: torch.Tensor, *others: Any) -> torch.Tensor:
        leaf = matrix.requires_grad_()
        (gradient,) = torch.autograd.grad(total(leaf, *others), leaf, create_graph=True)
        for _ in range(times):
            (gradient,) = torch.autograd.grad((gradient**2).sum(), leaf, create_graph=True)
        return gradient

    def pushed(matrix: torch.Tensor, *others: Any) -> torch.Tensor:
        return torch.func.jvp(lambda own: score(own, *others), (matrix,), (torch.tensor(case(problem).direction),))[1]

    def pushed_gradient(matrix: torch.Tensor, *others: Any) -> torch.Tensor:
        gradient = lambda own: torch.func.grad(total)(own, *others)  # noqa: E731
        return torch.func.jvp(gradient, (matrix,), (torch.tensor(case(problem).direction),))[1]

    def marginals(matrix: torch.Tensor, lengths: torch.Tensor, parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch_impl.marginals(function, matrix, lengths, **parameters)

    transformed = {
        COMPILE: compiled(score, backend="eager"),
        GRAD: autograd,
        FUNCTIONAL_GRAD: torch.func.grad(total),
        VMAP: torch.func.vmap(score),
        GRAD_OF_GRAD: functools.partial(autograd_again, 1),
        FUNCTIONAL_GRAD_OF_GRAD: torch.func.grad(squares_of(torch.func.grad(total))),
        VMAP_OF_GRAD: torch.func.vmap(torch.func.grad(score)),
        JVP: pushed,
        JVP_OF_GRAD: pushed_gradient,
        THIRD: functools.partial(autograd_again, 2),
        EXPORT: lambda *given: exported(score, given)(*given),
        EXPORT_OF_GRAD: lambda *given: exported(marginals, given)(*given),
    }[transform]
    return transformed(*arguments).detach().numpy()


def assert_right(got: np.ndarray, transform: str, problem: str) -> None:
    wanted = getattr(case(problem), GIVES[transform])
    assert np.abs(wanted).max() > 1e-3  # so that zeros are no answer
    # second derivatives are differences of the reference's first ones
    tolerance = 1e-8 if GIVES[transform] in ("second", "products") else 1e-12
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("framework", "variants", "transform", "problem", "variant"), SHOWN)
def test_every_entry_is_what_happens(framework, variants, transform, problem, variant):
    outcome = OUTCOMES[framework, variants, transform]
    # JAX has one gradient
    same = {FUNCTIONAL_GRAD: GRAD, FUNCTIONAL_GRAD_OF_GRAD: GRAD_OF_GRAD} if framework == "jax" else {}
    compute = {"jax": by_jax, "torch": by_torch}[framework]
    given = same.get(transform, transform), problem, variant
    if outcome.startswith("yes"):
        assert_right(compute(*given), transform, problem)
    else:
        named = "" if transform == EXPORT_OF_GRAD else f"variant '{variant}' "
        with pytest.raises(RuntimeError, match=named + outcome.removeprefix("raises: ")):
            compute(*given)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_what_is_excepted_raises(problem):
    excepted = [(*key, name) for key, outcome in OUTCOMES.items() for name in re.findall("`(.*?)`", outcome)]
    assert excepted
    for framework, _, transform, variant in excepted:
        if framework == "jax":
            with pytest.raises(ValueError, match="custom calls whose targets have no compatibility guarantees"):
                by_jax(transform, problem, variant)
        else:
            with pytest.raises(RuntimeError, match=f"variant '{variant}'"):
                by_torch(transform, problem, variant)


class Model(torch.nn.Module):
    """Marginals and a product of their derivative, with a learned gap."""

    def __init__(self, variant: str) -> None:
        super().__init__()
        self.function = functools.partial(torch_impl.smith_waterman, variant=variant)
        self.gap = torch.nn.Parameter(torch.tensor(-1.5, dtype=torch.float64))

    def forward(self, matrix: torch.Tensor, lengths: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
        own = {"gap": self.gap, "temperature": temperature}
        marginals = torch_impl.marginals(self.function, matrix, lengths, **own)
        product = torch_impl.hessian_vector_product(self.function, matrix, 2 * marginals, lengths, **own)
        return torch.stack([marginals, product])


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("variant", BY_HAND)
def test_torch_exports_derivatives_for_any_batch_size(variant, strict):
    similarity, lengths, parameters = case("smith_waterman").arguments
    whole = tuple(torch.tensor(array) for array in (similarity, lengths, parameters["temperature"]))
    model, batch = Model(variant), {0: torch.export.Dim("batch")}
    some = tuple(array[:2] for array in whole)
    program = torch.export.export(model, some, strict=strict, dynamic_shapes=(batch, batch, batch)).module()
    wanted = model(*whole).detach()
    assert wanted.abs().amax((1, 2, 3)).min() > 1e-3
    np.testing.assert_array_equal(program(*whole).detach(), wanted)


def test_torch_says_what_to_export_instead_of_another_gradient():
    def own(similarity: torch.Tensor, lengths: None = None) -> torch.Tensor:
        return torch_impl.smith_waterman(similarity, lengths)

    for gradient in (
        lambda s: torch_impl.marginals(own, s),
        lambda s: torch_impl.hessian_vector_product(own, s, s),
        torch.func.grad(lambda s: own(s).sum()),
    ):
        with pytest.raises(RuntimeError, match="export marginals or hessian_vector_product of a public function"):
            exported(gradient, (torch.ones(2, 3, 3),))


@pytest.mark.parametrize(
    ("problem", "backend"),
    [("smith_waterman_affine", "eager"), ("needleman_wunsch", "inductor")],
)
def test_torch_compile_alone_compiles_auto(problem, backend):
    similarity, lengths, parameters = case(problem).arguments
    function = torch.compile(getattr(torch_impl, problem), backend=backend, fullgraph=True)
    own = {name: torch.tensor(value) for name, value in parameters.items()}
    assert_right(function(torch.tensor(similarity), torch.tensor(lengths), **own).numpy(), COMPILE, problem)


def table_under(heading: str, text: str) -> list[list[str]]:
    """The cells of the first Markdown table in a section, without the line of dashes."""
    section = re.split(rf"^#+ {heading}$", text, flags=re.MULTILINE)[1]
    section = re.split(r"^#+ ", section, flags=re.MULTILINE)[0]
    table = re.search(r"(?:^\|.*\|\n)+", section, flags=re.MULTILINE)
    assert table is not None, f"no table under {heading}"
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.group().splitlines()]
    return [line for line in lines if not set("".join(line)) <= set("-: ")]


def test_the_readme_says_what_happens():
    head, *rows = table_under("Which transforms work", PAGE.read_text())
    assert head[1:] == list(COLUMNS.values())
    columns = {title: key for key, title in COLUMNS.items()}
    said = {
        (*columns[title], transform): cell
        for transform, *cells in rows
        for title, cell in zip(head[1:], cells, strict=True)
    }
    assert said == OUTCOMES
