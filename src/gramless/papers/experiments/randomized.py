"""Experiments of the paper "randomized": least-squares SVMs solved by random blocks, on MNIST and CIFAR-10.

The kernel is (x . y)^4 on unit vectors, C = 1e4, and the arithmetic is float32.
"""

from __future__ import annotations

import itertools
from typing import Any

from sklearn.pipeline import make_pipeline

from gramless.estimators.lssvm import LSSVC
from gramless.images import GaussianWindow, SpectrumFeatures, UnitNormalizer
from gramless.linalg.solvers import SOLVERS, Averaged, NystromCommittee
from gramless.papers.experiments.claims import (
    ChangeSince,
    Claim,
    Comparison,
    ConfusedWith,
    Fluctuation,
    Printed,
    SecondsPerStep,
    StepsTo,
)
from gramless.papers.experiments.spec import (
    Confusion,
    Curve,
    Gallery,
    History,
    Params,
    Reference,
    Spec,
    Table,
    product,
)

SOLVER_PARAMETERS = ("solver", "block_size", "max_iter", "tol", "n_estimators")
# About four passes over the rows for each block size; Kaczmarz, which converges more slowly, gets a quarter more.
STEPS = {500: 480, 1000: 240, 2000: 120, 5000: 48}
QUICK_STEPS = {50: 60, 100: 40, 200: 30}
ITERATIVE = {"kaczmarz": "Kaczmarz", "matching_pursuit": "Matching pursuit", "kaczmarz_mp": "The hybrid of the two"}


def unit_vectors(params: Params, seed: int) -> Any:
    """Return the transformer of eqs. (61)-(62): each image centred and scaled to unit norm."""
    return UnitNormalizer()


def quartic_classifier(params: Params, seed: int) -> Any:
    """Return the classifier of the paper; the grid point contains parameters of `LSSVC` and of a block solver."""
    settings = dict(params)
    if "block_size" in settings:
        chosen = {name: settings.pop(name) for name in SOLVER_PARAMETERS if name in settings}
        settings["solver"] = _block_solver(**chosen)
    return LSSVC(kernel="poly", degree=4, gamma=1.0, coef0=0.0, C=1e4, random_state=seed, **settings)


def _block_solver(solver: str, block_size: int, max_iter: int, tol: float = 1e-3, n_estimators: int = 1) -> Any:
    if solver == "nystrom_committee":
        return NystromCommittee(block_size, n_members=max_iter)
    single = SOLVERS[solver](block_size=block_size, tol=tol, max_iter=max_iter)
    return single if n_estimators == 1 else Averaged(single, n_runs=n_estimators)


def block_classifier(params: Params, seed: int) -> Any:
    """Return the classifier of the paper, solved by random blocks within 4 GB."""
    settings = {key: value for key, value in params.items() if key != "features"}
    # A tolerance that is not reached, because the paper runs a fixed number of steps.
    return quartic_classifier({"tol": 1e-6, "memory_budget": "4GB", **settings}, seed)


def fourier_mnist(params: Params, seed: int) -> Any:
    """Return the transformer to pixels and square roots of Fourier magnitudes, eqs. (69)-(75)."""
    return SpectrumFeatures(shape=(28, 28))


def fourier_digits(params: Params, seed: int) -> Any:
    return SpectrumFeatures(shape=(8, 8))


def cifar_features(params: Params, seed: int) -> Any:
    """Return E1: unit norm; E2: Gaussian window (76) and unit norm; E3: Gaussian window and Fourier features."""
    return _preprocessing(params["features"], (32, 32, 3))


def digits_features(params: Params, seed: int) -> Any:
    return _preprocessing(params["features"], (8, 8))


def _preprocessing(name: str, shape: tuple[int, ...]) -> Any:
    if name == "E1":
        return UnitNormalizer()
    return make_pipeline(GaussianWindow(shape=shape), UnitNormalizer() if name == "E2" else SpectrumFeatures(shape=shape))


def _solver_grid(steps: dict[int, int]) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"solver": solver, "block_size": size, "max_iter": int(count * (1.25 if solver == "kaczmarz" else 1))}
        for solver in ITERATIVE
        for size, count in steps.items()
    )


SPECS: tuple[Spec, ...] = (
    Spec(
        "randomized",
        "mnist-exact",
        "The full system solved",
        data="mnist",
        data_label="MNIST",
        about="The limit of the randomized solvers: the full system, solved by conjugate gradients with a Nyström "
        "preconditioner, on the raw pixels.",
        finding="The solvers of the paper all converge to about 1.1 %.",
        features=unit_vectors,
        estimator=quartic_classifier,
        grid=product(solver=["cg"], tol=[1e-3], max_iter=[30]),
        evaluate_every=1,
        views=(History(log_y=True), Table(metrics=("error", "seconds", "peak_mb")), Confusion(), Gallery()),
        references=(Reference(1.1, "Fig. 2", spread=0.1),),
        quick={"grid": product(solver=["cholesky", "cg"], tol=[1e-6], max_iter=[60])},
    ),
    Spec(
        "randomized",
        "mnist-solvers",
        "Error against iteration for three solvers",
        data="mnist",
        data_label="MNIST",
        about="Each step uses one random block of rows of the kernel matrix. Which solver needs the fewest steps, and what "
        "is the effect of larger blocks?",
        finding="Larger blocks need fewer steps. Matching pursuit needs fewer steps than Kaczmarz and fluctuates less; the "
        "hybrid is between the two. The error of the exact solution is 1.16 %.",
        features=unit_vectors,
        estimator=block_classifier,
        grid=_solver_grid(STEPS),
        evaluate_every=5,
        views=(
            History(series=("block_size",), facet="solver", log_y=True, title="Test error against iteration"),
            History(x="seconds", series=("block_size",), facet="solver", log_y=True, title="Test error against time"),
            Table(rows=("solver", "block_size")),
        ),
        references=(
            Reference(1.1, "Fig. 2(b)", {"solver": "kaczmarz", "block_size": 2000}, spread=0.1),
            Reference(1.1, "Fig. 2(c)", {"solver": "matching_pursuit", "block_size": 2000}, spread=0.02),
            Reference(1.1, "Fig. 2(d)", {"solver": "kaczmarz_mp", "block_size": 2000}, spread=0.05),
        ),
        headline={"solver": "matching_pursuit", "block_size": 2000},
        headline_reason="the block size of the paper and the fastest of its three solvers",
        quick={"grid": _solver_grid(QUICK_STEPS), "evaluate_every": 2},
    ),
    Spec(
        "randomized",
        "mnist-committee",
        "The Nyström committee",
        data="mnist",
        data_label="MNIST",
        about="Each member solves a Nyström approximation on its own random columns; the committee is the mean of the "
        "members.",
        finding="A few members reach a plateau that depends on the number of columns.",
        features=unit_vectors,
        estimator=block_classifier,
        grid=product(solver=["nystrom_committee"], block_size=[500, 1000, 2000, 5000], max_iter=[6]),
        evaluate_every=1,
        views=(
            History(series=("block_size",), title="Test error against members"),
            Curve(x="block_size", log_x=True),
            Table(rows=("block_size",)),
        ),
        headline={"block_size": 5000},
        headline_reason="the largest declared block; the largest block of the paper is 10,000",
        quick={"grid": product(solver=["nystrom_committee"], block_size=[50, 100, 200], max_iter=[6])},
    ),
    Spec(
        "randomized",
        "mnist-averaged",
        "The mean of five Kaczmarz runs",
        data="mnist",
        data_label="MNIST",
        about="Runs with different random blocks fluctuate independently. Does the mean of their coefficients fluctuate "
        "less than one run?",
        features=unit_vectors,
        estimator=block_classifier,
        grid=product(solver=["kaczmarz"], block_size=[2000], max_iter=[60], n_estimators=[1, 5]),
        evaluate_every=5,
        views=(
            History(series=("n_estimators",), title="Test error against iteration, all runs"),
            Table(rows=("n_estimators",)),
        ),
        headline={"n_estimators": 5},
        headline_reason="the mean of five runs is the subject of the experiment",
        quick={
            "grid": product(solver=["kaczmarz"], block_size=[100], max_iter=[20], n_estimators=[1, 5]),
            "evaluate_every": 2,
        },
    ),
    Spec(
        "randomized",
        "mnist-fourier",
        "Matching pursuit on Fourier features",
        data="mnist",
        data_label="MNIST",
        about="The features are the image and the square root of its spectrum. Conjugate gradients solve the same system to "
        "convergence.",
        features=fourier_mnist,
        estimator=block_classifier,
        grid=(
            {"solver": "matching_pursuit", "block_size": 2000, "max_iter": 120},
            {"solver": "cg", "tol": 1e-2, "max_iter": 40},
        ),
        evaluate_every=5,
        views=(
            History(series=("solver",), log_y=True),
            Table(rows=("solver",)),
            Gallery(where={"solver": "matching_pursuit"}, limit=120),
            Confusion(where={"solver": "matching_pursuit"}),
        ),
        references=(Reference(0.85, "Fig. 3", {"solver": "matching_pursuit"}, spread=0.01),),
        headline={"solver": "matching_pursuit"},
        headline_reason="the setting of the paper",
        quick={
            "features": fourier_digits,
            "grid": (
                {"solver": "matching_pursuit", "block_size": 200, "max_iter": 30},
                {"solver": "cg", "tol": 1e-3, "max_iter": 40},
            ),
            "evaluate_every": 2,
        },
    ),
    Spec(
        "randomized",
        "cifar10",
        "Three kinds of image features",
        data="cifar10",
        data_label="CIFAR-10",
        about="E1 is unit norm, E2 a Gaussian window and unit norm, E3 a Gaussian window and Fourier features.",
        finding="After 100 steps the solver has not converged, which regularises: the error of the converged solution is "
        "higher.",
        features=cifar_features,
        estimator=block_classifier,
        grid=product(features=["E1", "E2", "E3"], solver=["matching_pursuit"], block_size=[2500], max_iter=[100]),
        evaluate_every=10,
        views=(
            History(series=("features",), title="Test error against iteration"),
            Table(rows=("features",)),
            Confusion(where={"features": "E3"}),
            Gallery(where={"features": "E3"}, limit=60),
        ),
        references=(
            Reference(43.93, "4.2, E1", {"features": "E1"}, spread=0.03),
            Reference(41.21, "4.2, E2", {"features": "E2"}, spread=0.03),
            Reference(33.71, "4.2, E3 and Table 1", {"features": "E3"}, spread=0.01),
        ),
        headline={"features": "E3"},
        headline_reason="the last features of the paper",
        quick={
            "features": digits_features,
            "grid": product(features=["E1", "E2", "E3"], solver=["matching_pursuit"], block_size=[200], max_iter=[20]),
            "evaluate_every": 2,
        },
    ),
)


_MATCHING_PURSUIT, _KACZMARZ = {"solver": "matching_pursuit"}, {"solver": "kaczmarz"}


def _limit_claim(solver: str, letter: str, value: float, spread: float, note: str = "") -> Claim:
    return Claim(
        f"limit-{solver.replace('_', '-')}",
        f"{ITERATIVE[solver]} with blocks of 2,000 converges to an error of {value:g} ± {spread:g} % on the raw pixels of "
        "MNIST.",
        f"Section 4.1, Fig. 2({letter})",
        (Comparison("mnist-solvers", {"solver": solver, "block_size": 2000}, "near", Printed(f"{value:g}", f"{spread:g}")),),
        reason=note,
    )


def _solvers_compared(measure: Any) -> Comparison:
    """Return the comparison of matching pursuit with Kaczmarz at each block size."""
    return Comparison("mnist-solvers", _MATCHING_PURSUIT, "below", _KACZMARZ, measure, along="block_size", within=0.0)


def _pixels_compared(within: float) -> Comparison:
    """Return the comparison of Fourier features with raw pixels."""
    pixels = {**_MATCHING_PURSUIT, "block_size": 2000}
    return Comparison("mnist-fourier", _MATCHING_PURSUIT, "below", pixels, within=within, other_experiment="mnist-solvers")


_NOT_CONVERGED = "Ours is stopped after 120 to 150 steps, while the error still falls; the paper has 600 steps."
CLAIMS: tuple[Claim, ...] = (
    Claim(
        "committee-converges",
        "A committee of Nyström classifiers converges fast: a few members reach a plateau of the error.",
        "Section 4.1, Fig. 2(a)",
        (Comparison("mnist-committee", {}, "at most", 0.0, ChangeSince(3), along="block_size", within=0.1),),
    ),
    Claim(
        "committee-block-size",
        "The plateau of the committee depends on the size of the blocks: larger blocks have a lower error.",
        "Section 4.1, Fig. 2(a)",
        tuple(
            Comparison("mnist-committee", {"block_size": large}, "below", {"block_size": small}, within=0.0)
            for small, large in itertools.pairwise((500, 1000, 2000, 5000))
        ),
    ),
    Claim(
        "committee-time",
        "The committee is the fastest method.",
        "Section 4.1",
        tuple(
            Comparison(
                "mnist-committee",
                {"block_size": 2000},
                "below",
                {"solver": solver, "block_size": 2000},
                "seconds",
                factor=1.0,
                within=0.0,
                other_experiment="mnist-solvers",
            )
            for solver in ITERATIVE
        ),
        reason="Six members, and four to five passes of the iterative solvers, all with blocks of 2,000.",
    ),
    _limit_claim("kaczmarz", "b", 1.1, 0.1, _NOT_CONVERGED),
    _limit_claim("matching_pursuit", "c", 1.1, 0.02),
    _limit_claim("kaczmarz_mp", "d", 1.1, 0.05, _NOT_CONVERGED),
    Claim(
        "kaczmarz-first-step",
        "The error of Kaczmarz is below 4 % after its first step, and then falls slowly.",
        "Section 4.1, Fig. 2(b)",
        (Comparison("mnist-solvers", {**_KACZMARZ, "block_size": 2000}, "at most", 5.0, StepsTo(4.0), within=0.0),),
        reason="The error is measured at every fifth step, so the first measurement is compared.",
    ),
    Claim(
        "matching-pursuit-steps",
        "Matching pursuit converges faster than Kaczmarz.",
        "Section 4.1, Fig. 2(c)",
        (_solvers_compared(StepsTo(1.5)),),
    ),
    Claim(
        "matching-pursuit-fluctuation",
        "The error of matching pursuit fluctuates less than that of Kaczmarz.",
        "Section 4.1, Fig. 2(c)",
        (_solvers_compared(Fluctuation(10)),),
    ),
    Claim(
        "time-per-step",
        "A step of matching pursuit takes about half the time of a step of Kaczmarz: 14 s and 29 s.",
        "Section 4.1",
        (
            Comparison(
                "mnist-solvers",
                {**_KACZMARZ, "block_size": 2000},
                "near",
                {**_MATCHING_PURSUIT, "block_size": 2000},
                SecondsPerStep(),
                factor=29 / 14,
                within=0.5,
            ),
        ),
        reason="In this library both steps use the same block and have the same cost. The times of the paper are those of "
        "four cores in 2016 and include the evaluation.",
    ),
    Claim(
        "averaging",
        "The mean of several Kaczmarz classifiers fluctuates less than one of them.",
        "Section 4.1, eqs. (67)-(68)",
        (Comparison("mnist-averaged", {"n_estimators": 5}, "below", {"n_estimators": 1}, Fluctuation(10), within=0.0),),
    ),
    Claim(
        "fourier-error",
        "With Fourier features the error of matching pursuit is 0.85 ± 0.01 %.",
        "Section 4.1, Fig. 3",
        (Comparison("mnist-fourier", _MATCHING_PURSUIT, "near", Printed("0.85", "0.01")),),
        reason="The converged solution of the same system has about the same error as matching pursuit.",
    ),
    Claim(
        "fourier-improves",
        "Fourier features improve on the raw pixels by 0.25 percentage points.",
        "Section 4.1",
        (_pixels_compared(0.0), _pixels_compared(0.15)),
        reason="The first comparison requires any improvement, the second one of more than 0.15 percentage points.",
    ),
    Claim(
        "cifar10-error",
        "On CIFAR-10 the error of matching pursuit is 43.93 % on normalised images, 41.21 % with a Gaussian window, and "
        "33.71 % with window and Fourier features.",
        "Section 4.2, Fig. 6",
        tuple(
            Comparison("cifar10", {"features": name}, "near", Printed(value))
            for name, value in (("E1", "43.93"), ("E2", "41.21"), ("E3", "33.71"))
        ),
    ),
    Claim(
        "cats-and-dogs",
        "Cats and dogs are confused most: 20.9 % of the cats are predicted as dogs, 18.3 % of the dogs as cats.",
        "Section 4.2, Table 1",
        (
            Comparison("cifar10", {"features": "E3"}, "near", Printed("20.9"), ConfusedWith("cat", "dog"), within=2.0),
            Comparison("cifar10", {"features": "E3"}, "near", Printed("18.3"), ConfusedWith("dog", "cat"), within=2.0),
        ),
        reason="The tolerance is larger than one standard error of 1,000 images of a class, 1.3 percentage points.",
    ),
    Claim(
        "memory",
        "A computer with 8 GB is sufficient for 60,000 images.",
        "Section 4.1",
        (Comparison("mnist-solvers", {}, "at most", 8000.0, "peak_mb", along="block_size", within=0.0),),
    ),
)
