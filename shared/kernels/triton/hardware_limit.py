"""A lower bound on the work of the CUDA kernels that no tuning removes: special function unit calls per cell.

A multiprocessor does a few of them in each cycle (16 on compute capability 8.0 and 9.0), powers of 2 as well as
reciprocals, so the rate of exponentials that a GPU reaches bounds the cells per second. Counted in the inner loops of
the machine code for 9.0, float32, forwards and back together; the tests count again. Where a pair can be computed in
plain odds that is counted, in the layout that needs fewer.
"""

# function -> pass -> calls for a cell
SPECIAL_FUNCTIONS = {
    "smith_waterman": {"score": 1.2, "marginals": 2.4, "hvp": 3.0},
    "smith_waterman_affine": {"score": 12, "marginals": 28, "hvp": 32},
    "free_gap": {"score": 1.2, "marginals": 2.4, "hvp": 3.0},
    "needleman_wunsch": {"score": 1.2, "marginals": 2.4, "hvp": 3.0},
}
