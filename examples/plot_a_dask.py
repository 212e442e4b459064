"""
A Dask cluster on one machine
=============================

Rows in four partitions on two workers, each partition from another part of the plane. Every partition becomes
a small matrix of sums, and the sums are added: the model is that of one machine, up to rounding.
"""

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
from dask.distributed import Client

from gramless import NystromLSSVC

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(-3, 3, size=(2400, 2)), axis=0)
X[:, 1] = rng.permutation(X[:, 1])
y = (np.sin(2 * X[:, 0]) + X[:, 1] > 0.3 * rng.normal(size=len(X))).astype(int)
settings = {"n_landmarks": 80, "gamma": 1.0, "C": 10.0, "random_state": 0}

with Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
    spread = NystromLSSVC(**settings).fit(da.from_array(X, chunks=(600, 2)), da.from_array(y, chunks=600))
alone = NystromLSSVC(**settings).fit(X, y)

x1, x2 = np.meshgrid(np.linspace(-3, 3, 150), np.linspace(-3, 3, 150))
grid = np.column_stack([x1.ravel(), x2.ravel()])
scores = {name: model.decision_function(grid).reshape(x1.shape) for name, model in (("spread", spread), ("alone", alone))}

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
for part, colour in enumerate(("tab:blue", "tab:orange", "tab:green", "tab:purple")):
    rows = slice(600 * part, 600 * part + 600)
    left.scatter(*X[rows].T, s=4, color=colour, alpha=0.35, label=f"partition {part + 1}")
left.contour(x1, x2, scores["spread"], levels=[0], colors="black", linewidths=2)
left.contour(x1, x2, scores["alone"], levels=[0], colors="white", linewidths=1, linestyles=":")
left.set_title("Border of the cluster (black) and of one machine (white)", fontsize=10)
left.legend(frameon=True, fontsize=8, loc="lower right")
image = right.imshow(
    np.log10(np.abs(scores["spread"] - scores["alone"]) + 1e-16), origin="lower", extent=(-3, 3, -3, 3), cmap="viridis"
)
figure.colorbar(image, ax=right, label="log10 of the difference")
right.set_title("Difference of the scores", fontsize=10)
plt.show()
