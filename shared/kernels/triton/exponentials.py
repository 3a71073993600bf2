"""A kernel that measures a GPU's rate of exponentials, which its special function units compute."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rounds"], do_not_specialize_on_alignment=["values", "results"])
def exponentials_kernel(values, results, rounds, lanes: tl.constexpr, each: tl.constexpr):
    """results = values after x -> 2^-x, `each` times per round. One program processes `lanes` numbers."""
    at = tl.program_id(0) * lanes + tl.arange(0, lanes)
    x = tl.load(values + at)
    for _ in range(rounds):
        for _ in tl.static_range(each):
            x = tl.exp2(-x)
    tl.store(results + at, x)
