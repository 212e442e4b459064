"""
Kernels that earn their weights
===============================

Six groups of features, of which two carry the signal, one a little, and three nothing. `MKLClassifier` learns
one weight for each group's kernel; the smaller `p`, the sparser.
"""

import matplotlib.pyplot as plt
import numpy as np

from gramless import MKLClassifier
from gramless.kernels import RBF, Columns

rng = np.random.default_rng(0)
y = rng.integers(0, 2, 400)
groups = [rng.normal(size=(400, 3)) for _ in range(6)]
groups[0] += 1.0 * y[:, None]
groups[1][:, 0] = np.where(y == 1, np.abs(groups[1][:, 0]) + 0.5, groups[1][:, 0] * 0.4)
groups[2] += 0.3 * y[:, None]
X = np.hstack(groups)
kernels = [Columns(RBF(gamma=0.3), slice(3 * k, 3 * k + 3)) for k in range(6)]

figure, axis = plt.subplots(figsize=(8, 4), layout="constrained")
for k, p in enumerate((1.1, 1.5, 2.0)):
    machine = MKLClassifier(kernels, C=1.0, p=p, random_state=0).fit(X[:250], y[:250])
    weights = machine.weights_ / machine.weights_.sum()
    label = f"p = {p:g}, accuracy {machine.score(X[250:], y[250:]):.2f}"
    axis.bar(np.arange(6) + 0.27 * (k - 1), weights, width=0.25, label=label)
names = ["shifted", "another shape", "shifted a little", "noise", "noise", "noise"]
axis.set_xticks(range(6), names)
axis.set(ylabel="share of the weights")
axis.legend(frameon=False)
plt.show()
