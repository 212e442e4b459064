"""Experiments of the paper "randomized": least-squares SVMs solved by random blocks, on MNIST and CIFAR-10.

The kernel is (x . y)^4 on unit vectors, C = 1e4, and the arithmetic is float32.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from gramless.estimators.lssvm import LSSVC
from gramless.images import GaussianWindow, SpectrumFeatures, UnitNormalizer
from gramless.linalg.operators.base import Operator
from gramless.linalg.solvers import SOLVERS, Kaczmarz, NystromCommittee, Step
from gramless.papers.datasets import Dataset, load
from gramless.papers.experiments import measures
from gramless.papers.experiments.claims import Comparison, Printed, read_claims
from gramless.papers.experiments.spec import Params, product

ITERATIVE = ("kaczmarz", "matching_pursuit", "kaczmarz_mp")
EARLY_MEAN, LATE_MEAN = measures.early_mean(100), measures.late_mean(100)
LATE_FLUCTUATION = measures.fluctuation(100)
READINGS = ("columns", "rows", "two-dimensional")


class ParallelKaczmarz(Kaczmarz):
    """Mean of the coefficients of several Kaczmarz runs after each of their steps, eqs. (67)-(68).

    `Averaged` makes the runs one after another and has the mean of all runs only at the end.
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


def unit_vectors(params: Params, seed: int) -> Any:
    """Return the transformer of eqs. (61)-(62): each image centred and scaled to unit norm."""
    return UnitNormalizer()


def exact_classifier(params: Params, seed: int) -> Any:
    """Return the classifier solved exactly; the grid point has the kernel and its degree or width."""
    settings = {key: value for key, value in params.items() if key != "features"}
    return LSSVC(**{"kernel": "poly", "gamma": 1.0, "coef0": 0.0, "C": 1e4, **settings}, random_state=seed)


def block_classifier(params: Params, seed: int) -> Any:
    """Return the classifier of the paper, solved by random blocks within 4 GB, or 8 GB for blocks of 10,000.

    The tolerance is not reached, because the paper runs a fixed number of steps.
    """
    solver = _block_solver(params["solver"], params["block_size"], params["max_iter"], params.get("n_runs", 1))
    budget = "8GB" if params["block_size"] == 10_000 else "4GB"
    settings: dict[str, Any] = {"kernel": "poly", "degree": 4, "gamma": 1.0, "coef0": 0.0, "C": 1e4}
    return LSSVC(**settings, solver=solver, memory_budget=budget, random_state=seed)


def _block_solver(solver: str, block_size: int, max_iter: int, n_runs: int) -> Any:
    if solver == "nystrom_committee":
        return NystromCommittee(block_size, n_members=max_iter)
    if n_runs > 1:
        return ParallelKaczmarz(block_size, max_iter=max_iter, n_runs=n_runs)
    return SOLVERS[solver](block_size=block_size, tol=1e-6, max_iter=max_iter)


def mnist_features(params: Params, seed: int) -> Any:
    """Return unit vectors of pixels, or the Fourier features of eqs. (69)-(75) in one of their readings."""
    return _fourier(params["features"], (28, 28))


def small_features(params: Params, seed: int) -> Any:
    return _fourier(params["features"], (8, 8))


def _fourier(reading: str, shape: tuple[int, int]) -> Any:
    if reading == "pixels":
        return UnitNormalizer()
    if reading == "columns":
        return SpectrumFeatures(shape=shape)
    return FunctionTransformer(partial(spectrum, shape=shape, dimensions=2 if reading == "two-dimensional" else 1))


def spectrum(images: np.ndarray, shape: tuple[int, int], dimensions: int) -> np.ndarray:
    """Return the features of eqs. (69)-(75) with a transform of all rows of an image as one vector, or of two dimensions."""
    pixels = UnitNormalizer().fit_transform(images.astype(np.float32))
    half = pixels.shape[1] // 2
    if dimensions == 1:
        magnitudes = np.abs(np.fft.fft(pixels)[:, :half])
    else:
        # Half of the columns is the first half of the values in the order of the paper, column by column.
        magnitudes = np.abs(np.fft.fft2(pixels.reshape(-1, *shape))).transpose(0, 2, 1).reshape(len(pixels), -1)[:, :half]
    roots = UnitNormalizer().fit_transform(np.sqrt(magnitudes).astype(np.float32))
    return np.hstack([pixels, roots]) / np.float32(np.sqrt(2))


def cifar_features(params: Params, seed: int) -> Any:
    """Return E1: unit norm; E2: Gaussian window (76) and unit norm; E3: Gaussian window and Fourier features."""
    return _preprocessing(params["features"], (32, 32, 3))


def digits_features(params: Params, seed: int) -> Any:
    return _preprocessing(params["features"], (8, 8))


def _preprocessing(name: str, shape: tuple[int, ...]) -> Any:
    if name == "E1":
        return UnitNormalizer()
    return make_pipeline(GaussianWindow(shape=shape), UnitNormalizer() if name == "E2" else SpectrumFeatures(shape=shape))


def window(params: Params, seed: int) -> Any:
    """Return a Gaussian window of the decay c, given as c L^2, and unit norm."""
    return make_pipeline(GaussianWindow(params["c_times_L_squared"] / 32**2, shape=(32, 32, 3)), UnitNormalizer())


def window_of_digits(params: Params, seed: int) -> Any:
    return make_pipeline(GaussianWindow(params["c_times_L_squared"] / 8**2, shape=(8, 8)), UnitNormalizer())


def sixth_of_mnist(seed: int) -> Dataset:
    """Return 10,000 random training images of MNIST and all test images."""
    return load("mnist").sample(10_000, seed=seed)


def part_of_cifar10(seed: int) -> Dataset:
    """Return 10,000 random training images of CIFAR-10 and all test images."""
    return load("cifar10").sample(10_000, seed=seed)


_MATCHING_PURSUIT, _KACZMARZ, _HYBRID = ({"solver": name} for name in ("matching_pursuit", "kaczmarz", "kaczmarz_mp"))
_DEGREE_4 = {"features": "pixels", "kernel": "poly", "degree": 4}
_OTHER_KERNELS = (
    *product(kernel=["poly"], degree=[2, 3, 5, 6]),
    *product(kernel=["rbf"], gamma=[0.5, 1.0, 2.0, 4.0, 8.0]),
)


def _solver(one: Params, relation: str, other: Any, measure: Any = None) -> Comparison:
    """Return a comparison of a solver with a value or with another solver."""
    return Comparison("mnist-solvers", one, relation, other, measure or LATE_MEAN)


def _between(measure: Any) -> tuple[Comparison, ...]:
    """Return the comparisons of the hybrid with its parents."""
    return (_solver(_HYBRID, "below", _KACZMARZ, measure), _solver(_HYBRID, "above", _MATCHING_PURSUIT, measure))


def _fourier_readings(relation: str, other: Any, **settings: Any) -> tuple[Comparison, ...]:
    return tuple(
        Comparison("mnist-fourier", {"features": reading}, relation, other, LATE_MEAN, reading=reading, **settings)
        for reading in READINGS
    )


def _cifar10(features: str, relation: str, other: Any, measure: Any = "error") -> Comparison:
    return Comparison("cifar10", {"features": features}, relation, other, measure)


def _averaged(measure: Any) -> tuple[Comparison, ...]:
    return (Comparison("mnist-averaged", {"n_runs": 5}, "below", {"n_runs": 1}, measure),)


_IN_TIME: dict[str, Any] = {"measure": "seconds", "factor": 1.0, "other_experiment": "mnist-solvers"}
CLAIMS = read_claims(
    "randomized",
    {
        "committee-converges": (
            Comparison("mnist-committee", {}, "at most", 0.2, measures.change_since(6), along="block_size"),
        ),
        "committee-block-size": tuple(
            Comparison("mnist-committee", {"block_size": large}, "below", {"block_size": small})
            for small, large in itertools.pairwise((500, 1000, 2000, 5000, 10000))
        ),
        "committee-time": tuple(
            Comparison("mnist-committee", {"block_size": 10000}, "below", {"solver": solver}, **_IN_TIME)
            for solver in ITERATIVE
        ),
        "limit-kaczmarz": (_solver(_KACZMARZ, "near", Printed("1.1", "0.1")),),
        "limit-matching-pursuit": (_solver(_MATCHING_PURSUIT, "near", Printed("1.1", "0.02")),),
        "limit-kaczmarz-mp": (_solver(_HYBRID, "near", Printed("1.1", "0.05")),),
        "kaczmarz-first-step": (_solver(_KACZMARZ, "below", 4.0, measures.at_step(1)),),
        "matching-pursuit-steps": (_solver(_MATCHING_PURSUIT, "below", _KACZMARZ, EARLY_MEAN),),
        "hybrid-steps": _between(EARLY_MEAN),
        "matching-pursuit-fluctuation": (_solver(_MATCHING_PURSUIT, "below", _KACZMARZ, LATE_FLUCTUATION),),
        "hybrid-fluctuation": _between(LATE_FLUCTUATION),
        "kernel-svm": tuple(_solver({"solver": solver}, "at most", 1.4) for solver in ITERATIVE),
        "time-per-step": (
            Comparison("mnist-cost", _KACZMARZ, "near", _MATCHING_PURSUIT, "cpu_seconds", factor=29 / 14, within=0.25),
        ),
        "averaging": _averaged(measures.fluctuation(50)),
        "averaging-error": _averaged(measures.late_mean(50)),
        "fourier-error": _fourier_readings("near", Printed("0.85", "0.01")),
        "fourier-improves": _fourier_readings("below", _MATCHING_PURSUIT, other_experiment="mnist-solvers"),
        "degree-4": tuple(
            Comparison("mnist-exact", _DEGREE_4, "below", {"features": "pixels", **kernel}, deterministic=True)
            for kernel in _OTHER_KERNELS
        ),
        "cifar10-e1": (_cifar10("E1", "near", Printed("43.93", "0.03")),),
        "cifar10-e2": (_cifar10("E2", "near", Printed("41.21", "0.03")),),
        "cifar10-e3": (_cifar10("E3", "near", Printed("33.71", "0.01")),),
        "cifar10-order": (_cifar10("E2", "below", {"features": "E1"}), _cifar10("E3", "below", {"features": "E2"})),
        "window-decay": tuple(
            Comparison("cifar10-window", {"c_times_L_squared": 4.0}, "below", {"c_times_L_squared": other})
            for other in (1.0, 2.0, 8.0, 16.0)
        ),
        "cats-and-dogs": (
            _cifar10("E3", "near", Printed("20.9"), measures.confused_with("cat", "dog")),
            _cifar10("E3", "near", Printed("18.3"), measures.confused_with("dog", "cat")),
        ),
        "most-confused": (_cifar10("E3", "above", 0.0, measures.lead_of_pair("cat", "dog")),),
        "memory": (Comparison("mnist-cost", {}, "at most", 8000.0, "peak_mb", along="solver"),),
    },
)
