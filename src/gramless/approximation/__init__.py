"""Finite sets of points and features that approximate a kernel: landmarks, feature maps, clustering."""
