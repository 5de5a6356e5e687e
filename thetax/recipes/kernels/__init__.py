"""Recipes with kernels: Gaussian processes and networks of infinite width."""
