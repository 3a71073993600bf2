"""What both frameworks share: problems, reference, checks, inputs and the benchmark. Imports neither JAX nor PyTorch."""
