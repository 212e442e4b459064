"""Strings that represent missing values in text files, tables and requests."""

ALWAYS_MISSING = ("", "?", "NaN", "nan")
"""Missing in every column."""

MISSING_NUMBERS = ("NA", "N/A", "n/a", "#N/A", "<NA>", "NULL", "null", "None", "none", "-", ".")
"""Missing in columns of numbers and dates; in a column of strings they may be categories ("NA" for Namibia)."""
