"""What both frameworks share: problems, reference, checks, inputs, benchmark. Imports neither JAX nor PyTorch."""
