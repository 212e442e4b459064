"""Matrices that are close to `A` and cheap to invert."""
