"""
A path of C without a refit
===========================

`LSSVR(C="loo")` computes the leave-one-out error of every C, for several kernels, from one factorisation each.
Around its minimum it follows the error on new rows, and the model at the minimum is kept.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from gramless import LSSVR

X, y = load_diabetes(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(StandardScaler().fit_transform(X), y, test_size=0.5, random_state=1)
gammas = [0.001, 0.01, 0.1]
search = LSSVR(C="loo", Cs=np.logspace(-3, 4, 40), gamma=gammas, scoring="neg_mean_squared_error").fit(X_train, y_train)

figure, axis = plt.subplots(figsize=(7.5, 4.4), layout="constrained")
for colour, params, scores in zip(("tab:blue", "tab:green", "tab:orange"), search.params_, search.scores_, strict=True):
    gamma = params["gamma"]
    axis.plot(search.Cs, np.sqrt(-scores), color=colour, label=f"leave-one-out, gamma = {gamma:g}")
    new = [
        np.sqrt(np.mean((LSSVR(C=C, gamma=gamma).fit(X_train, y_train).predict(X_test) - y_test) ** 2))
        for C in search.Cs[::3]
    ]
    axis.plot(search.Cs[::3], new, ":", color=colour, label="on new rows")
axis.plot(search.C_, np.sqrt(-search.best_score_), "k*", markersize=13, label="kept")
axis.set(xscale="log", xlabel="C", ylabel="root mean squared error", ylim=(52, 90))
axis.legend(frameon=False, ncols=2, fontsize=8)
plt.show()
