"""`gamma="scale"` against scikit-learn, `"weighted_scale"` against the variance of rows that are repeated."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.svm import SVC

from gramless import LSSVC, KernelSVC, NystromLSSVC
from gramless.kernels.bandwidth import resolve_gamma

FORMS = {"numpy": np.asarray, "tensor": torch.as_tensor, "csr": sp.csr_array}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mean", [0.0, 1e4])
def test_single_precision_rows_far_from_zero(form, mean):
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(600, 20)) + mean).astype(np.float32)
    copies = rng.integers(0, 4, size=600)
    made = FORMS[form](X)
    assert resolve_gamma("scale", made) == pytest.approx(1 / (20 * X.var(dtype=np.float64)), rel=1e-9)
    expected = 1 / (20 * np.repeat(X, copies, axis=0).var(dtype=np.float64))
    assert resolve_gamma("weighted_scale", made, copies.astype(float)) == pytest.approx(expected, rel=1e-9)
    assert resolve_gamma("weighted_scale", made) == resolve_gamma("scale", made, copies) == resolve_gamma("scale", made)


@pytest.mark.parametrize("estimator", [KernelSVC(), LSSVC(), NystromLSSVC(n_landmarks=20, random_state=0)])
def test_weights_do_not_enter_the_scale_and_do_enter_the_weighted_one(estimator):
    rng = np.random.default_rng(0)
    y = (np.arange(90) < 12).astype(int)
    X = rng.normal(size=(90, 3)) * (1.0 + 3.0 * y[:, None])
    weights = rng.uniform(0.5, 2.0, 90)
    reference = SVC(class_weight="balanced").fit(X, y, weights)._gamma
    plain = clone(estimator).fit(X, y).kernel_.gamma
    balanced = clone(estimator).set_params(class_weight="balanced").fit(X, y, weights)
    assert plain == balanced.kernel_.gamma == pytest.approx(reference, rel=1e-12)
    weighted = balanced.set_params(gamma="weighted_scale", class_weight=None).fit(X, y, weights).kernel_.gamma
    mean = np.average(X.mean(axis=1), weights=weights)
    assert weighted == pytest.approx(1 / (3 * np.average(((X - mean) ** 2).mean(axis=1), weights=weights)))


def test_sparse_rows_with_zeros_and_with_an_entry_in_two_parts():
    X = sp.random(200, 30, 0.1, format="csr", random_state=0)
    assert resolve_gamma("scale", X) == pytest.approx(1 / (30 * X.toarray().var()), rel=1e-9)
    parts = sp.csr_array((np.array([1.0, 2.0, 5.0]), np.array([0, 0, 1]), np.array([0, 2, 3])), shape=(2, 2))
    assert resolve_gamma("scale", parts) == pytest.approx(1 / (2 * parts.toarray().var()), rel=1e-9)
    assert parts.nnz == 3


@pytest.mark.parametrize("weights", [None, np.ones(4000)], ids=["unweighted", "weighted"])
def test_no_second_copy_of_the_data(weights):
    X = np.ones((4000, 3000), dtype=np.float32)
    tracemalloc.start()
    resolve_gamma("weighted_scale", X, weights)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < X.nbytes


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, -1000.1])
@pytest.mark.parametrize("n", [10, 100, 1000])
def test_constant_data_has_no_scale(n, value, weighted):
    """Though its mean, and the variance with it, is rounded."""
    assert resolve_gamma("weighted_scale", np.full((n, 7), value), np.ones(n) if weighted else None) == 1.0


def test_a_small_spread_is_a_scale():
    X = 1.0 + 1e-12 * np.random.default_rng(0).normal(size=(200, 3))
    assert resolve_gamma("scale", X) == pytest.approx(1.0 / (3 * X.var()))
