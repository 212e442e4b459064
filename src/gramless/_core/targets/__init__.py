"""Conversion of class labels and regression targets to columns of a target matrix."""
