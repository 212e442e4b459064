"""Rows of weight zero in the tasks of the distributed RiSVO, without a cluster."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from gramless import RiSVOClassifier

pytest.importorskip("distributed")
from gramless.distributed import risvo
from gramless.distributed.collections import Piece

RNG = np.random.default_rng(0)
X, y = RNG.normal(size=(30, 3)), np.arange(30) % 3
STATE = np.random.RandomState(0)


def test_given_landmark_of_weight_zero_is_the_row_that_was_given():
    weights = np.where(np.arange(30) < 10, 0.0, 1.0)
    blank = RiSVOClassifier(landmarks=[12, 3, 20], gamma=0.5)
    basis = risvo._choose(blank, Piece(X, y, weights), np.arange(30), STATE)
    np.testing.assert_array_equal(basis.points, X[[12, 3, 20]])
    np.testing.assert_array_equal(basis.support, [12, 3, 20])


def test_class_of_weight_zero_is_missing_in_the_fit_of_a_piece():
    blank = RiSVOClassifier(landmarks=[0, 1, 2, 3], gamma=0.5)
    basis = risvo._choose(blank, Piece(X, y, None), np.arange(30), STATE)
    weights = (y != 2).astype(float)
    coef, bias, _ = risvo._fit_alone(Piece(X, y, weights), basis, clone(blank), np.arange(3), None)
    expected = risvo._fit_alone(Piece(X[y != 2], y[y != 2], None), basis, clone(blank), np.arange(3), None)
    np.testing.assert_allclose(coef, expected[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(bias, expected[1], rtol=1e-9)
