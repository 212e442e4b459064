"""Components of `TableClassifier` and `TableRegressor`.

column_types  types of the columns of a data frame, and encoding of their values as numbers and category codes
target_encoding  cross-fitted effects of categories on the target
preparation   conversion of numbers and category codes to columns of comparable size
exact         kernel least squares with leave-one-out scores from one factorisation, and learned scales of the columns
partition     partition of many rows into local subsets, each small enough for an exact solution
search        selection of scaling, kernel, kernel width and C by leave-one-out on a growing sample
members       fit of the selected hyperparameters to all rows, and hyperparameters of a model that is not an average
losses        losses by which hyperparameters are compared: log loss, squared, absolute or Huber's error
tuning        thresholds of the hyperparameter search, the fit and the memory plan
"""
