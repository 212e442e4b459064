"""Every numba and Triton loop, behind plain functions."""
