"""Spherical k-means: initialisation, assignment and update of the centroids."""
