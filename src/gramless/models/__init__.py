"""Base classes of the support vector estimators and of the one-pass estimators."""
