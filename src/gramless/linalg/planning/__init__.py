"""Memory estimates of fits, and plans of solves: the solver, the cache and the landmarks."""
