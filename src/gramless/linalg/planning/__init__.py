"""What a fit will do and what it will cost, decided before it starts."""
