"""
A stream that changes
=====================

Batches arrive, and what separates the classes turns slowly. `NystromLSSVC.partial_fit` learns from each batch
after it was predicted. With a forgetting factor old rows lose weight and the model follows; without one it
averages over all that ever came.
"""

import matplotlib.pyplot as plt
import numpy as np

from gramless import NystromLSSVC

rng = np.random.default_rng(0)
n_batches, n_rows = 90, 60


def batch(turn):
    X = rng.normal(size=(n_rows, 2))
    side = np.cos(turn) * X[:, 0] + np.sin(turn) * X[:, 1]
    return X, (side + 0.3 * np.sin(3 * X[:, 0]) > 0).astype(int)


landmarks = rng.normal(size=(60, 2))
models = {
    "remembers everything": NystromLSSVC(landmarks=landmarks, gamma=0.5, C=10.0),
    "forgetting_factor=0.998": NystromLSSVC(landmarks=landmarks, gamma=0.5, C=10.0, forgetting_factor=0.998),
}
accuracy = {name: [] for name in models}
turns = np.concatenate([np.zeros(25), np.linspace(0, np.pi, 45), np.full(20, np.pi)])
for number, turn in enumerate(turns):
    X, y = batch(turn)
    for name, model in models.items():
        if number:
            accuracy[name].append(100 * model.score(X, y))
        model.partial_fit(X, y, classes=[0, 1])

figure, axis = plt.subplots(figsize=(8.5, 4), layout="constrained")
for name, values in accuracy.items():
    smooth = np.convolve(values, np.ones(5) / 5, mode="valid")
    axis.plot(np.arange(5, n_batches), smooth, label=name)
axis.axvspan(25, 70, color="0.92", label="the border turns by half a circle")
axis.set(xlabel="batch", ylabel="accuracy on the next batch, %, mean of 5", ylim=(0, 102))
axis.legend(frameon=False, loc="lower left")
plt.show()
