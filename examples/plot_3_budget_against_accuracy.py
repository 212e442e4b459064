"""
How many points does a model need?
==================================

Landmarks, random features and a budget of points, from 25 to 800 of each, against the machine that keeps
every row. More points err less and cost more; where the curve gets flat is a good place to stop.
"""

import time

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from gramless import LSSVC, BudgetLSSVC, FourierLSSVC, NystromLSSVC

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, random_state=0, stratify=y)
sizes = [25, 50, 100, 200, 400, 800]
common = {"C": 10.0, "gamma": 0.1, "random_state": 0}
machines = {
    "NystromLSSVC": lambda size: NystromLSSVC(n_landmarks=size, **common),
    "FourierLSSVC": lambda size: FourierLSSVC(n_components=size, **common),
    "BudgetLSSVC": lambda size: BudgetLSSVC(budget=size, epochs=5, **common),
}

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for name, make in machines.items():
    errors, seconds = [], []
    for size in sizes:
        started = time.perf_counter()
        machine = make(size).fit(X_train, y_train)
        seconds.append(time.perf_counter() - started)
        errors.append(100 * (1 - machine.score(X_test, y_test)))
    left.plot(sizes, errors, marker="o", label=name)
    right.plot(seconds, errors, marker="o", label=name)
exact = LSSVC(C=10.0, gamma=0.1).fit(X_train, y_train)
for axis in (left, right):
    error = 100 * (1 - exact.score(X_test, y_test))
    axis.axhline(error, color="black", linestyle=":", label=f"LSSVC, all {len(X_train):,} rows")
    axis.set(xscale="log", yscale="log", ylabel="test error, %")
    axis.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"], minor=False)
    axis.minorticks_off()
left.set(xlabel="points or features")
left.set_xticks(sizes, sizes)
right.set(xlabel="seconds to fit", title="Error against time")
left.set(title="Error against size")
left.legend(frameon=False)
plt.show()
