"""What `TableClassifier` and `TableRegressor` are made of.

columns       what each column of a frame is, and its values as numbers and codes
preparation   numbers and codes as columns of comparable size, in one of several ways
exact         least squares with leave-one-out scores from one factorisation
metric        a scale for each column, downhill in the leave-one-out loss
partition     many rows as a tree of neighbourhoods, each small enough for an exact solution
search        which preparation, kernel, width and C, by leave-one-out on a sample that grows
losses        what is compared: log loss, squared or absolute error
"""
