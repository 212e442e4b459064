"""Memory estimates and solver plans."""
