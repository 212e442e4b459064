"""Experiments of the paper "randomized": least-squares SVMs solved by random blocks, on MNIST and CIFAR-10.

The kernel is (x . y)^4 on unit vectors, C = 1e4, and the arithmetic is float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from gramless.estimators.lssvm import LSSVC
from gramless.images import GaussianWindow, SpectrumFeatures, UnitNormalizer
from gramless.linalg.operators.base import Operator
from gramless.linalg.solvers import SOLVERS, Kaczmarz, NystromCommittee, Step
from gramless.papers.experiments.declarations import Params


class ParallelKaczmarz(Kaczmarz):
    """Mean of the coefficients of several Kaczmarz runs after each of their steps, eqs. (67)-(68) of the paper.

    The solver `Averaged` of the library performs the runs one after another and returns only the mean after the last run.
    """

    def __init__(self, block_size: int, *, tol: float = 1e-6, max_iter: int = 100, n_runs: int = 5):
        super().__init__(block_size, tol=tol, max_iter=max_iter)
        self.n_runs = n_runs

    def steps(
        self, op: Operator, Z: Any, W: Any, rng: np.random.RandomState, state: dict[str, Any] | None = None
    ) -> Iterator[Step]:
        seeds = rng.randint(2**31 - 1, size=self.n_runs)
        runs = [super(ParallelKaczmarz, self).steps(op, Z, W, np.random.RandomState(seed)) for seed in seeds]
        for steps in zip(*runs, strict=True):
            mean = sum(step.W for step in steps) / self.n_runs
            yield Step(mean, max(step.residual for step in steps))


def block_classifier(params: Params, seed: int) -> Any:
    """Return the classifier of the paper; its memory budget is 8 GB for blocks of 10,000 rows and 4 GB for other blocks.

    The solver stops after `max_iter` steps, as in the paper, before it reaches its tolerance.
    """
    block_size, max_iter, n_runs = params["block_size"], params["max_iter"], params.get("n_runs", 1)
    if params["solver"] == "nystrom_committee":
        solver: Any = NystromCommittee(block_size, n_members=max_iter)
    elif n_runs > 1:
        solver = ParallelKaczmarz(block_size, max_iter=max_iter, n_runs=n_runs)
    else:
        solver = SOLVERS[params["solver"]](block_size=block_size, tol=1e-6, max_iter=max_iter)
    settings: dict[str, Any] = {"kernel": "poly", "degree": 4, "gamma": 1.0, "coef0": 0.0, "C": 1e4}
    budget = "8GB" if block_size == 10_000 else "4GB"
    return LSSVC(**settings, solver=solver, memory_budget=budget, random_state=seed)


def fourier_features(params: Params, seed: int, shape: tuple[int, int]) -> Any:
    """Return a transformer to unit vectors of pixels, or to Fourier features by one interpretation of eqs. (69)-(75)."""
    reading = params["features"]
    if reading == "pixels":
        return UnitNormalizer()
    if reading == "columns":
        return SpectrumFeatures(shape=shape)
    return FunctionTransformer(spectrum, kw_args={"shape": shape, "dimensions": 2 if reading == "two-dimensional" else 1})


def spectrum(images: np.ndarray, shape: tuple[int, int], dimensions: int) -> np.ndarray:
    """Return the features of eqs. (69)-(75), with the Fourier transform of an image as one vector or in two dimensions."""
    pixels = UnitNormalizer().fit_transform(images.astype(np.float32))
    half = pixels.shape[1] // 2
    if dimensions == 1:
        magnitudes = np.abs(np.fft.fft(pixels)[:, :half])
    else:
        # The paper keeps the first half of the values in column-major order, which is the left half of the columns.
        magnitudes = np.abs(np.fft.fft2(pixels.reshape(-1, *shape))).transpose(0, 2, 1).reshape(len(pixels), -1)[:, :half]
    roots = UnitNormalizer().fit_transform(np.sqrt(magnitudes).astype(np.float32))
    return np.hstack([pixels, roots]) / np.float32(np.sqrt(2))


def preprocessing(params: Params, seed: int, shape: tuple[int, ...]) -> Any:
    """Return the transformer E1 (unit norm), E2 (window of eq. (76), unit norm) or E3 (window, Fourier features)."""
    name = params["features"]
    if name == "E1":
        return UnitNormalizer()
    return make_pipeline(GaussianWindow(shape=shape), UnitNormalizer() if name == "E2" else SpectrumFeatures(shape=shape))


def gaussian_window(params: Params, seed: int, shape: tuple[int, ...]) -> Any:
    """Return a transformer with a Gaussian window of decay c, given as c L^2 for L rows of pixels, and with unit norm."""
    return make_pipeline(GaussianWindow(params["c_times_L_squared"] / shape[0] ** 2, shape=shape), UnitNormalizer())
