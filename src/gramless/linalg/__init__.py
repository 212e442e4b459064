"""Linear systems with kernel matrices: operators, preconditioners, solvers and the plan of a solve."""
