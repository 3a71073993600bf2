"""A lower bound on the work of the CUDA kernels that no tuning removes: special function unit calls per cell.

A multiprocessor does a few of them in each cycle (16 on compute capability 8.0 and 9.0), powers of 2 as well as
reciprocals, so the rate of exponentials that a GPU reaches bounds the cells per second. Counted in the inner loops of
the machine code for 9.0, float32, forwards and back together; the tests count again.
"""

# function -> pass -> calls for a cell
SPECIAL_FUNCTIONS = {
    "smith_waterman": {"score": 6, "marginals": 13, "hvp": 14},
    "smith_waterman_affine": {"score": 12, "marginals": 28, "hvp": 32},
    "free_gap": {"score": 5, "marginals": 12, "hvp": 13},
    "needleman_wunsch": {"score": 5, "marginals": 12, "hvp": 13},
}
