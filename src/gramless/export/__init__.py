"""Models for other runtimes."""
