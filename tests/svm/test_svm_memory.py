"""The least memory of a support vector fit."""

import numpy as np
import pytest

from gramless import KernelSVR
from gramless.kernels import RBF
from gramless.svm.box_qp import BoxQP
from gramless.svm.gram_rows import GramRows, StoredGram
from gramless.svm.smo import SMO


def test_thirty_thousand_rows_fit_in_100_megabytes():
    plan = KernelSVR(memory_budget="100MB")._fit_plan(30_000, 8, 1, "float64", "cpu")
    assert plan.memory.nbytes <= 100e6


def test_a_problem_whose_matrix_exceeds_the_budget_is_solved_in_working_sets():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    problem = BoxQP.classification(np.where(X[:, 0] * X[:, 1] > 0, 1.0, -1.0), np.ones(600))
    rich, poor = (GramRows(RBF(0.5), X, [slice(0, 600)], budget=budget) for budget in (8 * 600**2, 8 * 600**2 - 1))
    assert rich.fits_memory(1)
    assert not poor.fits_memory(1)
    assert StoredGram(RBF(0.5)(X, X)).fits_memory(1)
    [whole], [parts] = (SMO(tol=1e-6).maximise([problem], rows) for rows in (rich, poor))
    assert parts.objective == pytest.approx(whole.objective, rel=1e-6)
