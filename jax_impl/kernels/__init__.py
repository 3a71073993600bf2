"""The variant `fused` in JAX: the kernels of shared.kernels, C++ for CPUs and Triton for GPUs, called by XLA."""
