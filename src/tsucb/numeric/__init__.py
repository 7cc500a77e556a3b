"""Arithmetic: random numbers, special functions, triangular roots, stacks of matrices."""
