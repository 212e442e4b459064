"""The reproduction of five papers: datasets, experiments, claims of the papers, and the report."""
