"""From batches of features and targets to coefficients."""
