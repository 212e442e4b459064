"""Explicit feature maps: from rows to features whose inner products are a kernel."""
