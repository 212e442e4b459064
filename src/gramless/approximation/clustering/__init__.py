"""The steps of k-means."""
