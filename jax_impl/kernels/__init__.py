"""The variant `fused` in JAX: the kernels of shared.native, called by XLA, and on a GPU those of shared.cuda."""
