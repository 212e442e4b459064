"""From labels and values to the columns that a machine is asked to reproduce."""
