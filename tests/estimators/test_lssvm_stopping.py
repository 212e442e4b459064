"""`tol="auto"`: conjugate gradients stop when the predictions have converged, compared with dense float64 algebra."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from gramless import LSSVC, LSSVR
from gramless.linalg.operators import DenseOperator
from gramless.linalg.solvers import CG, Status, solve
from gramless.linalg.solvers.cg import predictions_converged


def noisy_values(n: int = 1500, noise: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + noise * rng.normal(size=n)


def exact(X: np.ndarray, z: np.ndarray, ridge: np.ndarray, gamma: float) -> np.ndarray:
    """Scores of the training rows by the bordered system."""
    n = len(z)
    K = rbf_kernel(X, gamma=gamma)
    M = np.block([[K + np.diag(ridge), np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
    solution = np.linalg.solve(M, np.append(z, 0.0))
    return K @ solution[:-1] + solution[-1]


@pytest.mark.parametrize("C", [1.0, 100.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_scores_are_within_the_bound_of_the_exact_ones(C: float, weighted: bool) -> None:
    X, y = noisy_values()
    weights = np.random.default_rng(1).uniform(0.1, 3, len(y)) if weighted else np.ones(len(y))
    model = LSSVR(C=C, gamma=0.3, solver="cg", random_state=0).fit(X, y, sample_weight=weights)
    truth = exact(X, y, 1 / (C * weights), 0.3)
    predicted = model.predict(X)
    off, errors = (np.sqrt(np.mean(weights * d**2)) for d in (predicted - truth, y - predicted))
    assert off <= 0.075 * errors  # a twentieth by the recurrence, half as much again by the true residual
    assert model.residual_ > 1e-3  # which is what it cost no iterations for


@pytest.mark.parametrize("C", [1.0, 1e4])
def test_labels_are_those_of_the_exact_solution(C: float) -> None:
    X, y = noisy_values()
    labels = (y > 0.2).astype(int) + (y > 0.9)
    settled, to_the_end = (LSSVC(C=C, solver="cg", tol=tol, random_state=0).fit(X, labels) for tol in ("auto", 1e-7))
    assert settled.n_iter_ < to_the_end.n_iter_
    assert np.mean(settled.predict(X) != to_the_end.predict(X)) < 0.1 * np.mean(to_the_end.predict(X) != labels)


def test_values_without_noise_go_on_to_a_residual_of_a_thousandth() -> None:
    X, y = noisy_values(noise=0.0)
    assert LSSVR(C=1e4, solver="cg", random_state=0).fit(X, y).residual_ <= 1e-3


def test_a_tolerance_is_kept_whatever_has_settled() -> None:
    X, y = noisy_values()
    assert LSSVR(solver="cg", tol=1e-6, random_state=0).fit(X, y).residual_ <= 1e-6
    assert LSSVR(solver=CG(tol=1e-5), random_state=0).fit(X, y).residual_ <= 1e-5


def test_every_column_counts() -> None:
    ridge = np.full(4, 0.5)
    settled = predictions_converged(ridge, intercept=False)
    W = np.ones((4, 2))  # errors of a half in each row
    R = np.full((4, 2), 0.02)
    assert settled(W, R)
    R[:, 1] = 0.03
    assert not settled(W, R)


class Drifting(DenseOperator):
    """Products with what is no direction of unit length, a solution, are not what the recurrence believes."""

    def __matmul__(self, V: np.ndarray) -> np.ndarray:
        product = super().__matmul__(V)
        return product if abs(np.linalg.norm(V) - 1) < 1e-6 else product + 0.1

    def rows_times(self, rows: np.ndarray, V: np.ndarray) -> np.ndarray:
        return (self @ V)[rows]


def test_what_the_recurrence_only_believes_does_not_end_the_solve() -> None:
    A, Z = np.diag(np.linspace(1, 9, 40)), np.ones((40, 1))

    def small(W: np.ndarray, R: np.ndarray) -> bool:
        return bool(np.linalg.norm(R) < 0.01)

    plain, drifting = (solve(op, Z, CG(tol=1e-9, convergence_test=small)) for op in (DenseOperator(A), Drifting(A)))
    assert plain.status is drifting.status is Status.PREDICTIONS_CONVERGED
    assert drifting.n_iter > plain.n_iter  # it began again from a residual of a tenth
    assert drifting.residual <= 1.5 * 0.01 / np.linalg.norm(Z)
