"""The variant `fused` in PyTorch: the native kernels of shared.native, called through ctypes."""
