"""Components of `TableClassifier` and `TableRegressor`.

column_types  column types of a data frame, and the encoding of its values as numbers and category codes
target_encoding  cross-fitted effects of categories on the target
preparation   scaling of numbers and category codes to columns of comparable size
exact         least squares with leave-one-out scores from one factorisation, and column scales that minimise their loss
partition     partition of many rows into local subsets, each small enough for an exact solution
search        selection of scaling, kernel, width and C by leave-one-out on a growing sample
members       fit of the selected settings to all rows, and settings of a single model
losses        losses by which settings are compared: log loss, squared or absolute error
tuning        thresholds of search, fit and memory plan
"""
