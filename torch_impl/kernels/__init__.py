"""The variant `fused` in PyTorch: the kernels of shared.kernels, C++ for CPUs (by ctypes) and Triton for GPUs."""
