"""The variant `fused` in JAX: the native kernels of shared.native, called by XLA."""
