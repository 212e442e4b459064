"""
Four machines, one problem
==========================

The same two moons, fitted by machines that differ in which points carry the model: all of them, support
vectors, a few landmarks, or none (random features). Circles are the points that each model keeps.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from gramless import LSSVC, FourierLSSVC, KernelSVC, NystromLSSVC

X, y = make_moons(300, noise=0.25, random_state=0)
machines = {
    "LSSVC": LSSVC(C=10, gamma=1.0),
    "KernelSVC": KernelSVC(C=10, gamma=1.0, random_state=0),
    "NystromLSSVC, 15 landmarks": NystromLSSVC(C=10, gamma=1.0, n_landmarks=15, random_state=0),
    "FourierLSSVC, 60 features": FourierLSSVC(C=10, gamma=1.0, n_components=60, random_state=0),
}

x1, x2 = np.meshgrid(np.linspace(-1.8, 2.8, 160), np.linspace(-1.4, 1.9, 120))
grid = np.column_stack([x1.ravel(), x2.ravel()])
figure, axes = plt.subplots(2, 2, figsize=(9, 6.4), sharex=True, sharey=True, layout="constrained")
for axis, (name, machine) in zip(axes.ravel(), machines.items(), strict=True):
    machine.fit(X, y)
    scores = machine.decision_function(grid).reshape(x1.shape)
    axis.contourf(x1, x2, scores, levels=np.linspace(-2, 2, 21), cmap="RdBu", extend="both", alpha=0.75)
    axis.contour(x1, x2, scores, levels=[0], colors="black", linewidths=1.5)
    for label, colour in enumerate(("tab:red", "tab:blue")):
        axis.scatter(*X[y == label].T, color=colour, s=16, edgecolors="white", linewidths=0.5)
    kept = getattr(machine, "support_vectors_", getattr(machine, "points_", X[:0]))
    n_kept = len(X) if name == "LSSVC" else len(kept)
    if name not in ("LSSVC", "FourierLSSVC, 60 features"):
        axis.scatter(*np.asarray(kept).T, s=42, facecolors="none", edgecolors="black", linewidths=0.9)
    points = "no points" if name.startswith("Fourier") else f"{n_kept} points"
    axis.set_title(f"{name}: {points}", fontsize=10)
plt.show()
