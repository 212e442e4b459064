"""
A memory budget that is kept
============================

One fit of 4,000 rows under smaller and smaller budgets. While the kernel matrix fits, it is kept; below that
it is computed again in tiles at each product, and the fit takes longer. The peak is measured, and stays under
the budget.
"""

import time
import tracemalloc

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification

from gramless import LSSVC

X, y = make_classification(4000, 30, n_informative=12, n_classes=4, random_state=0)
X = X.astype(np.float32)
budgets = [24, 32, 48, 64, 96, 128, 192]  # MB
LSSVC(solver="cg", gamma=0.02).fit(X[:2000], y[:2000])  # loads what is compiled

peaks, seconds, kept = [], [], []
for budget in budgets:
    machine = LSSVC(solver="cg", C=10, gamma=0.02, memory_budget=f"{budget}MB", random_state=0)
    tracemalloc.start()
    started = time.perf_counter()
    machine.fit(X, y)
    seconds.append(time.perf_counter() - started)
    peaks.append(tracemalloc.get_traced_memory()[1] / 1e6)
    tracemalloc.stop()
    kept.append("cached" in machine.solver_reason_)

colours = ["tab:blue" if cached else "tab:orange" for cached in kept]
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.bar(range(len(budgets)), peaks, color=colours, width=0.6)
left.step(np.arange(-0.5, len(budgets) + 0.5), [budgets[0], *budgets], color="black", where="pre", label="budget")
left.set(ylabel="MB", title="Peak of the fit", xticks=range(len(budgets)), xticklabels=budgets, xlabel="memory_budget, MB")
right.bar(range(len(budgets)), seconds, color=colours, width=0.6)
right.set(
    ylabel="seconds", title="Time of the fit", xticks=range(len(budgets)), xticklabels=budgets, xlabel="memory_budget, MB"
)
left.bar(0, 0, color="tab:blue", label="kernel matrix kept")
left.bar(0, 0, color="tab:orange", label="computed again in tiles")
left.legend(frameon=False)
plt.show()
