"""The experiments of the paper "randomized": least-squares SVMs solved by random blocks, on MNIST and CIFAR-10.

Everywhere the kernel is `(x . y)^4` on unit vectors, C = 1e4, and arithmetic is float32.
"""

from __future__ import annotations

from typing import Any

from sklearn.pipeline import make_pipeline

from gramless.estimators.lssvm import LSSVC
from gramless.experiments.spec import Params, Reference, Spec, product
from gramless.experiments.views import Confusion, Curve, Gallery, History, Table
from gramless.images import FourierFeatures, GaussianWindow, UnitNormalizer
from gramless.solvers import SOLVERS, Averaged, NystromCommittee

_IMAGES = {"mnist": (28, 28), "digits": (8, 8), "cifar10": (32, 32, 3)}


def unit_vectors(params: Params, seed: int) -> Any:
    """Eqs. (61)-(62): each image centred and scaled to unit norm."""
    return UnitNormalizer()


def quartic_machine(params: Params, seed: int) -> Any:
    """The paper's machine; the grid says how its system is solved."""
    settings = dict(params)
    if "block_size" in settings:
        settings["solver"] = _by_blocks(**{name: settings.pop(name) for name in _OF_BLOCKS if name in settings})
    return LSSVC(kernel="poly", degree=4, gamma=1.0, coef0=0.0, C=1e4, random_state=seed, **settings)


_OF_BLOCKS = ("solver", "block_size", "max_iter", "tol", "n_estimators")


def _by_blocks(solver: str, block_size: int, max_iter: int, tol: float = 1e-3, n_estimators: int = 1) -> Any:
    """A solver by blocks, or the mean of some runs of it."""
    if solver == "nystrom_committee":
        return NystromCommittee(block_size, n_members=max_iter)
    made = SOLVERS[solver](block_size=block_size, tol=tol, max_iter=max_iter)
    return made if n_estimators == 1 else Averaged(made, n_runs=n_estimators)


def machine_by_blocks(params: Params, seed: int) -> Any:
    """The paper's machine, solved by random blocks within 4 GB; the grid names the solver and its blocks."""
    settings = {key: value for key, value in params.items() if key != "features"}
    # The tolerance is out of reach: the paper runs a given number of steps.
    return quartic_machine({"tol": 1e-6, "memory_budget": "4GB", **settings}, seed)


def fourier_mnist(params: Params, seed: int) -> FourierFeatures:
    """Pixels and square roots of Fourier magnitudes, eqs. (69)-(75)."""
    return FourierFeatures(shape=_IMAGES["mnist"])


def fourier_digits(params: Params, seed: int) -> FourierFeatures:
    """The same for the embedded digits."""
    return FourierFeatures(shape=_IMAGES["digits"])


def _preprocessing(name: str, shape: tuple[int, ...]) -> Any:
    if name == "E1":
        return UnitNormalizer()
    window = GaussianWindow(shape=shape)
    return make_pipeline(window, UnitNormalizer() if name == "E2" else FourierFeatures(shape=shape))


def cifar_features(params: Params, seed: int) -> Any:
    """E1: unit norm; E2: Gaussian window (76) first; E3: window and Fourier features."""
    return _preprocessing(params["features"], _IMAGES["cifar10"])


def digits_features(params: Params, seed: int) -> Any:
    """The same three for the embedded digits."""
    return _preprocessing(params["features"], _IMAGES["digits"])


# About four passes over the rows, whatever the block size; more for the method that needs more.
_STEPS = {500: 480, 1000: 240, 2000: 120, 5000: 48}
_QUICK_STEPS = {50: 60, 100: 40, 200: 30}


def _solver_grid(steps: dict[int, int], kaczmarz_factor: float) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"solver": solver, "block_size": size, "max_iter": int(count * (kaczmarz_factor if solver == "kaczmarz" else 1))}
        for solver in ("kaczmarz", "matching_pursuit", "kaczmarz_mp")
        for size, count in steps.items()
    )


SPECS: tuple[Spec, ...] = (
    Spec(
        paper="randomized",
        name="mnist-exact",
        title="The system solved to the end",
        about=(
            "What the randomized solvers approach: the whole system, by conjugate gradients with a Nyström "
            "preconditioner, on the raw pixels. The paper's solvers all settle near 1.1 %."
        ),
        data="mnist",
        features=unit_vectors,
        estimator=quartic_machine,
        grid=product(solver=["cg"], tol=[1e-3], max_iter=[30]),
        evaluate_every=1,
        views=(History(log_y=True), Table(metrics=("error", "seconds", "peak_mb")), Confusion(), Gallery()),
        paper_says=(Reference(1.1, "Fig. 2", spread=0.1),),
        quick={"grid": product(solver=["cholesky", "cg"], tol=[1e-6], max_iter=[60])},
    ),
    Spec(
        "randomized",
        "mnist-solvers",
        "MNIST: error against iteration for three iterative solvers",
        "mnist",
        machine_by_blocks,
        _solver_grid(_STEPS, 1.25),
        features=unit_vectors,
        evaluate_every=5,
        views=(
            History(series=("block_size",), facet="solver", log_y=True, title="Test error against iteration"),
            History(x="seconds", series=("block_size",), facet="solver", log_y=True, title="Test error against time"),
            Table(rows=("solver", "block_size")),
        ),
        paper_says=(
            Reference(1.1, "Fig. 2(b)", {"solver": "kaczmarz", "block_size": 2000}, spread=0.1),
            Reference(1.1, "Fig. 2(c)", {"solver": "matching_pursuit", "block_size": 2000}, spread=0.02),
            Reference(1.1, "Fig. 2(d)", {"solver": "kaczmarz_mp", "block_size": 2000}, spread=0.05),
        ),
        about="Each step reads one random block of rows of the kernel matrix. Larger blocks need fewer steps; matching "
        "pursuit needs fewer than Kaczmarz and fluctuates less, the hybrid lies between. An exact solve errs 1.16 %.",
        quick={"grid": _solver_grid(_QUICK_STEPS, 1.25), "evaluate_every": 2},
    ),
    Spec(
        "randomized",
        "mnist-committee",
        "MNIST: the Nyström committee",
        "mnist",
        machine_by_blocks,
        product(solver=["nystrom_committee"], block_size=[500, 1000, 2000, 5000], max_iter=[6]),
        features=unit_vectors,
        evaluate_every=1,
        views=(
            History(series=("block_size",), title="Test error against members"),
            Curve(x="block_size", log_x=True),
            Table(rows=("block_size",)),
        ),
        about="Each member solves a Nyström approximation on its own random columns; the committee is their mean. A few "
        "members reach a plateau that depends on the number of columns.",
        quick={"grid": product(solver=["nystrom_committee"], block_size=[50, 100, 200], max_iter=[6])},
    ),
    Spec(
        "randomized",
        "mnist-averaged",
        "MNIST: the mean of five Kaczmarz runs",
        "mnist",
        machine_by_blocks,
        product(solver=["kaczmarz"], block_size=[2000], max_iter=[60], n_estimators=[1, 5]),
        features=unit_vectors,
        evaluate_every=5,
        views=(
            History(series=("n_estimators",), title="Test error against iteration, all runs"),
            Table(rows=("n_estimators",)),
        ),
        about="Runs with different blocks fluctuate differently; the mean of their coefficients is one machine, steadier "
        "than each of them.",
        quick={
            "grid": product(solver=["kaczmarz"], block_size=[100], max_iter=[20], n_estimators=[1, 5]),
            "evaluate_every": 2,
        },
    ),
    Spec(
        "randomized",
        "mnist-fourier",
        "MNIST: matching pursuit on Fourier features",
        "mnist",
        machine_by_blocks,
        (
            {"solver": "matching_pursuit", "block_size": 2000, "max_iter": 120},
            {"solver": "cg", "tol": 1e-2, "max_iter": 40},
        ),
        features=fourier_mnist,
        evaluate_every=5,
        views=(
            History(series=("solver",), log_y=True),
            Table(rows=("solver",)),
            Gallery(where={"solver": "matching_pursuit"}, limit=120, title="Misclassified digits"),
            Confusion(where={"solver": "matching_pursuit"}),
        ),
        paper_says=(Reference(0.85, "Fig. 3", {"solver": "matching_pursuit"}, spread=0.01),),
        about="The image beside the square root of its spectrum. Conjugate gradients show where the same system leads "
        "when it is solved to the end.",
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
        "CIFAR-10: three ways to prepare the images",
        "cifar10",
        machine_by_blocks,
        product(features=["E1", "E2", "E3"], solver=["matching_pursuit"], block_size=[2500], max_iter=[100]),
        features=cifar_features,
        evaluate_every=10,
        views=(
            History(series=("features",), title="Test error against iteration"),
            Table(rows=("features",)),
            Confusion(where={"features": "E3"}, title="Confusion matrix of E3"),
            Gallery(where={"features": "E3"}, limit=60),
        ),
        paper_says=(
            Reference(43.93, "4.2, E1", {"features": "E1"}, spread=0.03),
            Reference(41.21, "4.2, E2", {"features": "E2"}, spread=0.03),
            Reference(33.71, "4.2, E3 and Table 1", {"features": "E3"}, spread=0.01),
        ),
        about="E1 is unit norm, E2 a Gaussian window before it, E3 the window and Fourier features. A hundred steps stop "
        "short of the solution, which regularises: the converged machine is worse.",
        quick={
            "features": digits_features,
            "grid": product(features=["E1", "E2", "E3"], solver=["matching_pursuit"], block_size=[200], max_iter=[20]),
            "evaluate_every": 2,
        },
    ),
)
