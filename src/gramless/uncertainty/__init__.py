"""How sure a model is: intervals, prediction sets, standard deviations and the likelihood of a fit."""
