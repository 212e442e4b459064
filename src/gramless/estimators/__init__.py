"""The public scikit-learn estimators."""
