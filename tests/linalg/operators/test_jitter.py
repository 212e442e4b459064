"""Factorisations of matrices that are definite up to rounding: what was added is the least that helps, and is reported."""

import numpy as np
import pytest

from gramless.linalg.operators.jitter import jittered_cholesky


@pytest.mark.parametrize("asked", [None, 0.0, 1e-12])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_singular_matrix_gets_a_jitter_of_its_rounding(asked, order):
    A = np.array([[1.0, 2.0], [2.0, 4.0 - 1e-15]], order=order)
    before = A.copy()
    L, jitter = jittered_cholesky(A, asked)
    assert 0 < jitter <= 1e-11
    np.testing.assert_allclose(L @ L.T, A + jitter * np.eye(2), atol=1e-14)
    np.testing.assert_array_equal(A, before)


def test_a_definite_matrix_takes_the_jitter_asked_for():
    assert jittered_cholesky(np.eye(2), 0.0)[1] == 0.0


@pytest.mark.parametrize("entry", [-1.0, np.nan])
def test_an_indefinite_matrix_has_no_factor(entry):
    A = np.eye(3)
    A[1, 1] = entry
    with pytest.raises(np.linalg.LinAlgError):
        jittered_cholesky(A)
