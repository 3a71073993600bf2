"""The decision: who was faster, by how much, whether that is sure, and at what price."""

import math
from dataclasses import replace
from typing import Any

import hand_made
import pytest
from hand_made import blocks, case, ended, record, right, steady
from shared.bench.plan import Settings
from shared.bench.statistics import Block
from shared.bench.text import near_one, ratio_interval
from shared.bench.verdict import Verdict, contenders, verdicts

from shared.bench.record import Compilation, Result

ONE_PASS = Settings(passes=("score",))


def verdict(*results: Result, settings: Settings = ONE_PASS) -> Verdict:
    (only,) = verdicts(record(*results, settings=settings))
    return only


def pair(slow: float, fast: float) -> tuple[Result, Result]:
    return steady(case("jax", "scan_select"), slow), steady(case("torch", "vmap"), fast)


def of(framework: str, seconds: list[list[float]], variant: str = "vmap") -> Result:
    """A case with rounds by worker."""
    made = [Block(w, r, (value,)) for w, rounds in enumerate(seconds) for r, value in enumerate(rounds)]
    return replace(right(case(framework, variant)), blocks=made)


# who was faster


def test_the_faster_framework_is_named_with_the_factor_and_its_interval():
    slow, fast = pair(0.006, 0.0015)
    assert verdict(slow, fast).sentence == verdict(fast, slow).sentence
    assert verdict(slow, fast).sentence == (
        "PyTorch (vmap, 1.50 ms per call) was 4.00 times as fast as JAX (scan_select, 6.00 ms per call); "
        "95% interval 4.00 … 4.00."
    )
    assert verdict(slow, fast).is_difference and verdict(slow, fast).is_sure
    assert verdict(slow, fast).best == (fast, slow)


def test_each_framework_s_fastest_variant_is_compared():
    results = [
        steady(case("jax", "cell_loop"), 0.5),
        steady(case("jax", "vmap"), 0.001),
        steady(case("torch", "vmap"), 0.5),
        steady(case("torch", "diagonal_loop"), 0.003),
    ]
    found = verdict(*results)
    assert found.best == (results[1], results[3]) and found.others == tuple(results)
    assert found.sentence.startswith(
        "JAX (vmap, 1.00 ms per call) was 3.00 times as fast as PyTorch (diagonal_loop, 3.00 ms per call)"
    )


def test_it_goes_by_the_median_not_by_the_best_sample():
    lucky, even = of("jax", [[0.001, 0.009, 0.009, 0.009, 0.009]] * 4), steady(case("torch", "vmap"), 0.003)
    assert "PyTorch (vmap, 3.00 ms per call) was 3.00 times as fast" in verdict(lucky, even).sentence


def test_it_is_no_difference_when_the_interval_holds_1():
    jax = of("jax", [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    torch = of("torch", [[0.998, 0.998, 0.998], [1.004, 1.004, 1.004]])
    found = verdict(jax, torch)
    assert found.ratio is not None and found.ratio.low < 1 < found.ratio.high
    assert not found.is_difference and found.is_sure
    assert found.sentence == (
        "no difference between JAX (vmap, 1.00 s per call) and PyTorch (vmap, 1.00 s per call): JAX "
        f"{near_one(found.ratio.value)} times as fast, 95% interval {ratio_interval(found.ratio)}."
    )


def test_it_is_not_decided_when_the_interval_holds_much_more_than_1():
    jax = of("jax", [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    found = verdict(jax, of("torch", [[0.98, 0.98, 0.98], [1.04, 1.04, 1.04]]))
    assert found.ratio is not None and found.ratio.is_wide and not found.is_difference
    assert found.sentence.startswith("not decided between JAX (vmap, 1.00 s per call) and PyTorch (vmap, 1.01 s per")


def test_an_interval_that_ends_just_above_1_shows_that_it_does():
    close = verdict(steady(case("jax", "vmap"), 1.0), steady(case("torch", "vmap"), 1.002))
    assert close.is_difference and close.sentence.endswith("95% interval 1.0020 … 1.0020.")


@pytest.mark.parametrize("above", [1e-3, 1e-4, 1e-5, 1e-6])
def test_an_end_of_an_interval_is_never_shown_as_1_unless_it_is(above: float):
    sentence = verdict(steady(case("jax", "vmap"), 1.0), steady(case("torch", "vmap"), 1 + above)).sentence
    low, high = sentence.removesuffix(".").split("95% interval ")[1].split(" … ")
    assert float(low) > 1 and float(high) > 1


def test_what_both_share_is_no_difference_but_what_one_has_alone_is():
    # the machine drifts by far more than the frameworks differ; round by round torch is always 10 % slower
    drifting = [[1.0, 2.0, 3.0, 4.0, 5.0]] * 4
    found = verdict(of("jax", drifting), of("torch", [[1.1 * s for s in rounds] for rounds in drifting]))
    assert found.is_difference and found.ratio is not None and found.ratio.value == pytest.approx(1.1)


def test_where_medians_disagree_the_rounds_that_both_were_in_decide_the_order():
    # JAX has the smaller median, thanks to rounds that PyTorch was not in; where both were, it was slower
    jax = of("jax", [[2.0, 2.0, 1.0, 1.0, 1.0], [2.0, 2.0, 1.0, 1.0, 1.0]])
    torch = of("torch", [[1.5, 1.5], [1.5, 1.5]])
    assert jax.time.value < torch.time.value
    found = verdict(jax, torch)
    assert found.best == (torch, jax)
    assert found.ratio is not None and found.ratio.value == pytest.approx(2.0 / 1.5) and found.ratio.low > 1


# not enough to decide by


@pytest.mark.parametrize("rounds", [1, 20])
def test_one_process_is_not_enough_to_decide_by(rounds: int):
    found = verdict(of("jax", [[0.001] * rounds]), of("torch", [[0.004] * rounds]))
    assert found.ratio is not None and math.isnan(found.ratio.low)
    assert not found.is_sure and not found.is_difference
    assert found.sentence == (
        "not decided: JAX (vmap, 1.00 ms per call) was 4.00 times as fast as PyTorch (vmap, 4.00 ms per call) in one "
        "process, and another may say otherwise."
    )


def test_two_that_were_never_in_the_same_round_are_not_compared():
    early, late = of("jax", [[1.0, 1.0]]), of("torch", [[], [2.0, 2.0]])
    found = verdict(early, late)
    assert found.ratio is None and not found.is_difference
    assert "times as fast" not in found.sentence
    # both were measured, and a reader must not be told otherwise
    assert "only JAX" not in found.sentence


@pytest.mark.parametrize("other", [[], [ended(case("jax", "vmap"), "wrong", "", blocks=blocks([1e-6] * 5, 4))]])
def test_with_one_framework_there_is_nothing_to_compare(other: list[Result]):
    found = verdict(steady(case("torch", "vmap"), 100.0), *other)
    assert found.sentence == "only PyTorch (vmap, 100 s per call) was measured, so there is nothing to compare."
    assert not found.is_difference and not found.is_sure


def test_nothing_measured_is_told():
    found = verdict(Result(case("jax", "vmap")))
    assert (found.sentence, found.price, found.best, found.others) == ("no case was measured.", [], (), ())


@pytest.mark.parametrize("status", ["wrong", "failed", "limit"])
def test_a_bad_case_does_not_win(status: str):
    bad = replace(steady(case("jax", "fused"), 1e-6), status=status, reason="because")
    found = verdict(bad, *pair(0.006, 0.0015))
    assert bad not in found.others and "fused" not in found.sentence
    words = {"wrong": "was wrong", "failed": "failed", "limit": "was not done"}[status]
    assert found.price[0] == f"left out: JAX fused {words} (because)."
    assert "fused" not in "\n".join(found.price[1:])


# which ones there are


def test_there_is_one_for_each_pass():
    results = [
        steady(case("jax", "vmap", "score"), 0.001),
        steady(case("torch", "vmap", "score"), 0.002),
        steady(case("jax", "vmap", "marginals"), 0.008),
        steady(case("torch", "vmap", "marginals"), 0.004),
    ]
    found = verdicts(record(*results, settings=Settings()))
    assert [(one.pass_name, one.sentence.split(" (")[0]) for one in found] == [
        ("score", "JAX"),
        ("marginals", "PyTorch"),
    ]


def test_there_is_one_for_each_size_of_a_sweep():
    sizes = {"6x7": hand_made.facts("small"), "60x70": hand_made.facts("large")}
    results = [
        steady(case(framework, "vmap", input=name), seconds)
        for name, times in (("6x7", (0.001, 0.002)), ("60x70", (0.04, 0.01)))
        for framework, seconds in zip(("jax", "torch"), times, strict=True)
    ]
    found = verdicts(record(*results, settings=Settings(passes=("score",), sweep=((6, 7), (60, 70))), inputs=sizes))
    assert [(one.input, one.sentence.split(" (")[0]) for one in found] == [("6x7", "JAX"), ("60x70", "PyTorch")]


def test_it_says_of_which_problem_on_which_device_it_is():
    found = verdict(settings=replace(ONE_PASS, problem="free_gap", device="cuda"))
    assert (found.problem, found.device, found.input, found.pass_name) == ("free_gap", "cuda", "batch", "score")


# the price


def price(*results: Result) -> dict[str, str]:
    """What it says, by what it is about."""
    lines = verdict(*results).price
    return {line.split(":")[0].split(",")[0]: line for line in lines}


def test_the_first_calls_of_the_best_are_told():
    jax = steady(
        case("jax", "vmap"), 0.001, cold=0.75, warm=[Compilation(0.25), Compilation(0.125), Compilation(0.5)],
        retrace=Compilation(0.375),
    )  # fmt: skip
    other = steady(case("jax", "scan_select"), 0.5, cold=99.0)
    assert price(jax, steady(case("torch", "vmap"), 0.002, cold=8.0), other)["first call"] == (
        "first call: JAX vmap 750 ms with empty caches, 250 ms in a new process with its caches on disk, "
        "375 ms on a new shape; PyTorch vmap 8.00 s with empty caches."
    )


def test_a_first_call_is_split_only_where_something_was_compiled():
    def told(**split: float | None) -> str:
        return price(replace(steady(case("jax", "vmap"), 0.001), cold=Compilation(0.75, **split)))["first call"]

    assert "(tracing 250 ms, compiling 375 ms)" in told(tracing=0.25, compiling=0.375)
    for split in ({"tracing": 0.25, "compiling": 0.0}, {"tracing": None, "compiling": None}, {"compiling": 0.5}):
        assert "tracing" not in told(**split)


FROM_THE_FIRST = (
    "break-even: JAX vmap takes the least time in all from the first call on, with empty caches; "
    "nothing is surely faster later."
)


def test_a_dearer_first_call_that_pays_is_told_with_its_number_of_calls():
    cheap, dear = steady(case("torch", "wavefront"), 0.5, cold=1.0), steady(case("jax", "vmap"), 0.25, cold=1001.0)
    assert price(cheap, dear)["break-even"] == (
        "break-even, first call with empty caches included: least time in all takes PyTorch wavefront up to call "
        "4,000 (4,000 … 4,000), from then on JAX vmap."
    )


def test_what_is_cheaper_and_faster_is_so_from_the_first_call_on():
    results = steady(case("torch", "vmap"), 0.5, cold=2.0), steady(case("jax", "vmap"), 0.25, cold=1.0)
    assert price(*results)["break-even"] == FROM_THE_FIRST


def test_every_measured_variant_may_break_even_not_the_best_alone():
    plain = steady(case("torch", "diagonal_loop", compiled=False), 4.0, cold=1.0)
    middle, fast = (steady(case("jax", v), s, cold=c) for v, s, c in (("vmap", 2.0, 10.0), ("wavefront", 1.0, 50.0)))
    assert price(plain, middle, fast)["break-even"].endswith(
        "takes PyTorch diagonal_loop up to call 5 (5 … 5), then JAX vmap up to call 41 (41 … 41), "
        "from then on JAX wavefront."
    )


def test_a_gain_that_is_not_sure_makes_no_break_even():
    cheap = of("jax", [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    dear = replace(of("torch", [[0.97, 0.97, 0.97], [1.02, 1.02, 1.02]]), cold=Compilation(5.0))
    assert dear.time.value < cheap.time.value
    assert price(cheap, dear)["break-even"] == FROM_THE_FIRST
    one_round = right(case("jax", "vmap"), 1.0), right(case("torch", "vmap"), 0.5, cold=5.0)
    assert price(*one_round)["break-even"] == FROM_THE_FIRST


def test_who_overtakes_is_seen_in_the_rounds_that_both_were_in_as_the_verdict_sees_it():
    cheap = right(case("jax", "vmap"), 1.0, 1.0, 1.0, workers=4)
    # its other rounds were slow ones, which the first was spared
    dear = right(case("torch", "vmap"), 0.8, 0.8, 0.8, 2.0, 2.0, 2.0, 2.0, workers=4, cold=5.0)
    assert dear.time.value > cheap.time.value
    assert "from then on PyTorch vmap" in price(cheap, dear)["break-even"]


def test_without_a_gain_that_is_not_sure_the_number_is_that_of_the_two_that_are_named():
    # the unsure one lies between: cheapest for a while, if its median were to be believed
    cheap = replace(of("jax", [[10.0] * 3] * 4, "diagonal_loop"), cold=Compilation(1.0))
    unsure = replace(of("jax", [[9.0] * 3] * 3 + [[30.0] * 3], "vmap"), cold=Compilation(2.0))
    sure = replace(of("torch", [[5.0] * 3] * 4, "wavefront"), cold=Compilation(1001.0))
    assert price(cheap, sure)["break-even"].endswith("up to call 200 (200 … 200), from then on PyTorch wavefront.")
    assert price(cheap, unsure, sure)["break-even"] == price(cheap, sure)["break-even"]


# who can still win


def contending(*results: Result, **settings: Any) -> set[tuple[str, str]]:
    made = record(*results, settings=replace(ONE_PASS, **settings))
    return {(found.framework, found.variant) for found in contenders(made)}


def test_what_is_surely_slower_than_its_frameworks_best_cannot_win():
    results = [
        *(steady(case(framework, "vmap"), 0.2) for framework in ("jax", "torch")),
        *(steady(case(framework, "fused"), 0.1) for framework in ("jax", "torch")),
    ]
    assert contending(*results) == {("jax", "fused"), ("torch", "fused")}


def test_what_is_not_surely_slower_still_can():
    close = of("jax", [[0.98, 0.98, 0.98], [1.04, 1.04, 1.04]], "wavefront")
    best = of("jax", [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]], "fused")
    assert contending(close, best, steady(case("torch", "vmap"), 9.0)) == {
        ("jax", "wavefront"), ("jax", "fused"), ("torch", "vmap")
    }  # fmt: skip


def test_with_two_sides_all_cases_go_on():
    sides = [
        steady(case("jax", variant, side=side), t) for variant, t in (("vmap", 0.2), ("fused", 0.1)) for side in (1, 2)
    ]
    assert contending(*sides, sides=2) == {("jax", "vmap"), ("jax", "fused")}


# the other variants


def test_each_variant_that_both_have_is_compared():
    results = [
        *(steady(case(framework, "vmap"), seconds) for framework, seconds in (("jax", 0.2), ("torch", 0.1))),
        *(steady(case(framework, "wavefront"), seconds) for framework, seconds in (("jax", 0.01), ("torch", 0.04))),
        *(steady(case(framework, "scan_select"), 0.3) for framework in ("jax", "torch")),
        steady(case("jax", "diagonal_loop"), 9.0),
    ]
    assert price(*results)["variant by variant"] == (
        "variant by variant: vmap PyTorch 2.00 times as fast (2.00 … 2.00); wavefront JAX 4.00 times as fast "
        "(4.00 … 4.00); scan_select no difference (1.00 … 1.00)."
    )


def test_one_variant_alone_is_compared_by_the_verdict_itself():
    assert "variant by variant" not in price(steady(case("jax", "vmap"), 0.2), steady(case("torch", "vmap"), 0.1))


def test_a_variant_without_an_interval_is_not_compared():
    both = steady(case("jax", "vmap"), 0.2), steady(case("torch", "vmap"), 0.1)
    assert "variant by variant" not in price(*both[:1], right(case("torch", "wavefront"), 0.1))
    once = right(case("jax", "fused"), 0.1), right(case("torch", "fused"), 0.2)
    assert "fused" not in price(*both, *once)["variant by variant"]


@pytest.mark.parametrize(
    ("variants", "is_told"), [(("fused", "fused"), True), (("vmap", "vmap"), False), (("fused", "vmap"), False)]
)
def test_that_both_ran_the_same_kernel_is_told(variants: tuple[str, str], is_told: bool):
    results = [steady(case(framework, name), 0.1) for framework, name in zip(("jax", "torch"), variants, strict=True)]
    assert ("same code" in price(*results)) is is_told


def test_the_memory_of_the_best_is_told_beside_the_sizes_of_input_and_output():
    jax = steady(case("jax", "vmap"), 0.001, peak_bytes=5 * 2**20, input_bytes=2**20, output_bytes=480)
    torch = steady(case("torch", "vmap"), 0.002, peak_bytes=3 * 2**30, input_bytes=2**20, output_bytes=480)
    assert price(jax, torch)["peak memory of a call"] == (
        "peak memory of a call: JAX vmap 5.0 MiB, PyTorch vmap 3.00 GiB; input 1.0 MiB, output 480 B."
    )


def test_memory_that_nobody_knows_is_not_told():
    jax, torch = (replace(one, peak_bytes=None) for one in pair(0.002, 0.001))
    assert "peak memory of a call" not in price(jax, torch)
    assert price(jax, replace(torch, peak_bytes=0))["peak memory of a call"] == (
        "peak memory of a call: PyTorch vmap 0 B."
    )


def test_without_a_first_call_there_is_no_price_of_it():
    found = price(*(replace(one, cold=None) for one in pair(0.002, 0.001)))
    assert list(found) == ["peak memory of a call"]
