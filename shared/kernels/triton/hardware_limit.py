"""A lower bound on the work of the CUDA kernels that no tuning removes: special function unit calls per cell.

A multiprocessor does a few of them in each cycle (16 on compute capability 8.0 and 9.0), powers of 2 as well as
reciprocals, so the rate of exponentials that a GPU reaches bounds the cells per second. Counted in the inner loops of
the machine code for 9.0, float32, with block exponents, forwards and back together, in the layout that needs fewest;
the tests count again.
"""

# pass -> calls for a cell, of every function
SPECIAL_FUNCTIONS = {"score": 1.3, "marginals": 2.8, "hvp": 4.0}
