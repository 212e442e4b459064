"""Strings that represent missing values in text files, tables and requests."""

ALWAYS_MISSING = ("", "?", "NaN", "nan")
"""Strings that represent missing values in every column."""

MISSING_NUMBERS = ("NA", "N/A", "n/a", "#N/A", "<NA>", "NULL", "null", "None", "none", "-", ".")
"""Strings that represent missing values in columns of numbers and dates, but may be categories in columns of strings."""
