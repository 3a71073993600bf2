"""Shared by both frameworks: alignments, kernels, problems, reference, checks, benchmark. Imports neither of them."""
