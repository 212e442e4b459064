"""The experiments of the five papers: datasets, experiments, claims and the report."""
