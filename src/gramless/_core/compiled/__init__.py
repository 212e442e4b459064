"""All loops compiled by numba and Triton, as ordinary functions of arrays."""
