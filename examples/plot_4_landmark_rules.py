"""
Which rows become landmarks?
============================

Five rules choose 30 of 1,500 rows, in two dense clouds, a thin ring and a few stray points. Uniform draws
follow the density; randomly pivoted Cholesky and basis construction also see the thin parts; k-means makes
points of its own.
"""

import matplotlib.pyplot as plt
import numpy as np

from gramless.approximation.landmarks import LANDMARKS, select
from gramless.kernels import RBF

rng = np.random.default_rng(0)
angles = rng.uniform(0, 2 * np.pi, 200)
X = np.concatenate(
    [
        rng.normal([-1, 0], 0.25, (700, 2)),
        rng.normal([1, 0.3], 0.25, (580, 2)),
        np.column_stack([2.6 * np.cos(angles), 2.0 * np.sin(angles)]) + rng.normal(0, 0.05, (200, 2)),
        rng.uniform(-3, 3, (20, 2)),
    ]
)
kernel = RBF(gamma=2.0)


def left_out(points):
    """The share of the kernel's trace that the landmarks do not explain."""
    K = kernel(points, points) + 1e-10 * np.eye(len(points))
    half = np.linalg.solve(np.linalg.cholesky(K), kernel(points, X))
    return 100 * (1 - (half**2).sum() / len(X))


figure, axes = plt.subplots(1, len(LANDMARKS), figsize=(13, 2.9), sharex=True, sharey=True, layout="constrained")
for axis, rule in zip(axes, sorted(LANDMARKS), strict=True):
    chosen = np.asarray(select(rule, X, kernel, 30, np.random.RandomState(0)))
    points = X[chosen] if chosen.ndim == 1 else chosen
    axis.scatter(*X.T, s=2, color="0.8")
    axis.scatter(*points.T, s=22, color="tab:red", edgecolors="white", linewidths=0.5)
    axis.set_title(f"{rule}\n{left_out(points):.1f} % left out", fontsize=10)
    axis.set_aspect("equal")
plt.show()
