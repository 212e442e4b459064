"""Box-constrained quadratic programmes: the duals of support vector machines."""
