"""The variant `fused` in PyTorch: the kernels of shared.native, through ctypes, and on a GPU those of shared.cuda."""
