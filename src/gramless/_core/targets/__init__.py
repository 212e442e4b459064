"""Conversion of labels and values to target columns."""
