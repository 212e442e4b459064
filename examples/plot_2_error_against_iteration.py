"""
Error against iteration
=======================

The solvers of the least-squares machine on the digits of scikit-learn. A callback is called after each
iteration with an estimator that can already predict. Conjugate gradients with a Nyström preconditioner need a
handful of iterations; the randomized solvers read one block of the kernel matrix at each.
"""

import warnings

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from gramless import LSSVC
from gramless.images import UnitNormalizer
from gramless.linalg.solvers import CG, Kaczmarz, KaczmarzMP, MatchingPursuit

X, y = load_digits(return_X_y=True)
X = UnitNormalizer().fit_transform(X)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0, stratify=y)
solvers = {
    "conjugate gradients": CG(n_landmarks=100, max_iter=40, tol=1e-6),
    "matching pursuit": MatchingPursuit(block_size=100, max_iter=40, tol=1e-6),
    "Kaczmarz": Kaczmarz(block_size=100, max_iter=40, tol=1e-6),
    "hybrid": KaczmarzMP(block_size=100, max_iter=40, tol=1e-6),
}

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for name, solver in solvers.items():
    errors = []

    def watch(machine, record, errors=errors):
        errors.append(100 * (1 - machine.score(X_test, y_test)))
        return False

    machine = LSSVC(kernel="poly", degree=4, gamma=1.0, C=1e4, solver=solver, callback=watch, random_state=0)
    with warnings.catch_warnings():  # the tolerance is out of reach in so few iterations
        warnings.simplefilter("ignore")
        machine.fit(X_train, y_train)
    left.plot(range(1, len(errors) + 1), errors, label=name, marker="o", markersize=2.5)
    right.plot([record["n_iter"] for record in machine.history_], [record["residual"] for record in machine.history_])
left.set(xlabel="iteration", ylabel="test error, %", ylim=(0, 10), title="What users see")
right.set(xlabel="iteration", ylabel="relative residual", yscale="log", title="What the solver sees")
left.legend(frameon=False)
plt.show()
