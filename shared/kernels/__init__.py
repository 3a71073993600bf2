"""The kernels that both frameworks run: C++ for CPUs, Triton for GPUs."""
