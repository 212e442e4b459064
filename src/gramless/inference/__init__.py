"""Leave-one-out scores, probabilities, intervals and prediction sets of fitted models."""
