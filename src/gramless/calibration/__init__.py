"""From scores to probabilities, and leave-one-out scores in closed form."""
