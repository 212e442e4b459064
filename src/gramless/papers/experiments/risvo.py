"""The experiments of the paper "risvo": what the active set buys, what the basis costs, which landmarks to take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gramless.approximation.landmarks import LANDMARKS, BasisConstruction
from gramless.estimators.risvo import RiSVOClassifier
from gramless.linalg.operators import evaluate
from gramless.papers.datasets import Dataset, load
from gramless.papers.experiments.claims import Claim, Comparison
from gramless.papers.experiments.spec import QUICK_DATA, Params, Reference, Spec, product
from gramless.papers.experiments.views import Curve, History, Table

# Without an active set, one step of it, and until it is stable.
STEPS = product(max_iter=[1, 2, 30])
TWO_SETTINGS = (*product(settings=["printed"], max_iter=[1, 30]), *product(settings=["validated"], max_iter=[1, 2, 30]))
KERNEL_SAMPLE = 2000


def _scaled(name: str, divisor: float) -> Dataset:
    data = load(name)
    x_train, x_test = (np.asarray(x, dtype=np.float32) / np.float32(divisor) for x in (data.x_train, data.x_test))
    return replace(data, x_train=x_train, x_test=x_test)


def _of_unit_length(data: Dataset) -> Dataset:
    """Images of unit length: the paper does not say, and on MNIST reaches its figure with these, not with raw pixels."""
    halves = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (data.x_train, data.x_test))
    return replace(data, **dict(zip(("x_train", "x_test"), halves, strict=True)))


def mnist(seed: int) -> Dataset:
    return _of_unit_length(_scaled("mnist", 255))


def usps(seed: int) -> Dataset:
    data = _scaled("usps", 1)  # pixels from -1 to 1
    return _of_unit_length(replace(data, x_train=(data.x_train + 1) / 2, x_test=(data.x_test + 1) / 2))


def pendigits(seed: int) -> Dataset:
    return _scaled("pendigits", 100)


def pendigits_pooled(seed: int) -> Dataset:
    """All 10,992 rows split at random: test writers are then among the training writers."""
    return pendigits(seed).resplit(3498, seed=seed)


def letter(seed: int) -> Dataset:
    return _scaled("letter", 1)


def digits(seed: int) -> Dataset:
    return _scaled("digits", 16)


def _machine(params: Params, seed: int, **settings: Any) -> RiSVOClassifier:
    return RiSVOClassifier(random_state=seed, **{"rho": 1e-3, "check_inclusion": True, **settings, **params})


def on_mnist(params: Params, seed: int) -> RiSVOClassifier:
    basis = BasisConstruction(epsilon=0.5)
    kernel = {"kernel": "poly", "degree": 2, "gamma": 1.0, "coef0": 1.0}
    return _machine(params, seed, n_landmarks=3500, landmarks=basis, **kernel)


USPS = {"printed": {"rho": 1e-3}, "validated": {"rho": 1e-1}}
"""The paper's ridge, and the one with the least error on 1,491 training images held out at random."""


def on_usps(params: Params, seed: int) -> RiSVOClassifier:
    kernel = {"kernel": "poly", "degree": 2, "gamma": 1.0, "coef0": 1.0}
    settings = {"n_landmarks": 3035, "landmarks": "uniform", **USPS[params["settings"]]}
    return _machine({"max_iter": params["max_iter"]}, seed, **settings, **kernel)


LETTER = {
    "printed": {"landmarks": BasisConstruction(epsilon=0.3), "gamma_l": -1.2, "gamma_u": 1.2, "rho": 1e-3},
    "validated": {"landmarks": "uniform", "gamma_l": -1.0, "gamma_u": 1.0, "rho": 1e-2},
}
"""The paper's settings, and those with the least error on the last 3,000 training rows, fitted to the rest."""


def on_letter(params: Params, seed: int) -> RiSVOClassifier:
    settings = {"n_landmarks": 4000, "gamma": 1 / (2 * 5**2), "dtype": "float64", "zeta_l": -0.7, "zeta_u": 0.7}
    return _machine({"max_iter": params["max_iter"]}, seed, **settings, **LETTER[params["settings"]])


def on_pendigits(params: Params, seed: int) -> RiSVOClassifier:
    bounds = {"gamma_l": -1.0, "gamma_u": 1.0}
    return _machine(params, seed, n_landmarks=1500, landmarks="uniform", gamma=1 / (2 * 2.0**2), **bounds)


def on_digits(params: Params, seed: int) -> RiSVOClassifier:
    return _machine(params, seed, n_landmarks=200, gamma=0.1, dtype="float64")


def basis_of_mnist(params: Params, seed: int) -> RiSVOClassifier:
    kernel = {"kernel": "poly", "degree": 2, "gamma": 1.0, "coef0": 1.0}
    return _machine(params, seed, max_iter=30, check_inclusion=False, **kernel)


def rule_on_letter(params: Params, seed: int) -> RiSVOClassifier:
    return _machine(params, seed, max_iter=1, check_inclusion=False, gamma=1 / (2 * 5**2), dtype="float64")


def what_was_left(model: RiSVOClassifier, data: Dataset) -> dict[str, float]:
    """Size of the basis and of the active set, and how many discarded patterns would have come back."""
    violations = getattr(model, "inclusion_violations_", np.empty(0))
    return {"n_landmarks": len(model.points_), "active": len(model.active_set_), "violations": len(violations)}


def kernel_error(model: RiSVOClassifier, data: Dataset) -> dict[str, float]:
    """Share of the kernel's trace that the landmarks leave out, in percent, on a sample of the training rows."""
    sample = np.random.default_rng(0).permutation(len(data.x_train))[:KERNEL_SAMPLE]
    X, points = data.x_train[sample].astype(np.float64), np.asarray(model.points_, dtype=np.float64)
    K = evaluate(model.kernel_, points, points)
    values, vectors = np.linalg.eigh(K)
    keep = values > len(K) * np.finfo(np.float64).eps * values[-1]
    half = evaluate(model.kernel_, X, points) @ (vectors[:, keep] / np.sqrt(values[keep]))
    left = 100 * (1 - (half**2).sum() / model.kernel_.diag(X).sum())
    return {"kernel_error": float(left), "n_landmarks": len(points)}


FIGURE_1 = (
    Table(metrics=("error", "seconds", "active", "violations", "n_landmarks")),
    History(y="error", title="Test error against the step"),
    History(y="training_error", title="Training error (share) against the step"),
    History(y="discarded", log_y=True, title="Patterns discarded at the step"),
)
QUICK = {"data": digits, "on": QUICK_DATA, "estimator": on_digits, "grid": product(max_iter=[1, 2, 10])}
TABLE_1 = "With one iteration every pattern is used and there is no active set; two discard once; more go on until the set "
"is stable."


def _table_1(
    name: str, on: str, data: Any, estimator: Any, says: float, finding: str, grid: tuple[dict[str, Any], ...] = STEPS
) -> Spec:
    as_printed = {"settings": "printed"} if "settings" in grid[0] else {}
    return Spec(
        "risvo",
        name,
        "What the active set buys",
        data,
        estimator,
        grid,
        evaluate_every=1,
        extras=what_was_left,
        views=FIGURE_1,
        paper_says=(Reference(says, "Table 1", {"max_iter": 30}),),
        on=on,
        about=TABLE_1,
        finding=finding,
        headline={**as_printed, "max_iter": 30},
        chosen="the paper's settings, until the active set is stable",
        # On the digits all five would be the same experiment.
        quick=QUICK if name == "mnist" else None,
    )


SPECS: tuple[Spec, ...] = (
    _table_1(
        "mnist",
        "MNIST",
        mnist,
        on_mnist,
        2.33,
        "Images of unit length, a polynomial of degree 2, 3,500 landmarks.",
    ),
    _table_1(
        "usps",
        "USPS",
        usps,
        on_usps,
        4.81,
        "All 7,291 training images, of unit length, a polynomial of degree 2; the paper counts 3,035 training patterns and "
        "as many landmarks. With its ridge, and with one chosen on held-out training images.",
        TWO_SETTINGS,
    ),
    _table_1(
        "letter",
        "Letter Recognition",
        letter,
        on_letter,
        2.56,
        "An RBF, 4,000 landmarks. As printed in the paper, and with the band, the ridge and the number of steps (5) chosen "
        "on held-out training rows.",
        (*product(settings=["printed"], max_iter=[1, 30]), *product(settings=["validated"], max_iter=[1, 2, 5, 30])),
    ),
    _table_1(
        "pendigits",
        "Pendigits, the standard split",
        pendigits,
        on_pendigits,
        0.60,
        "An RBF, 1,500 landmarks. Test writers are unseen here, and the paper's figure is out of reach; see the pooled "
        "split beside it.",
    ),
    _table_1(
        "pendigits-pooled",
        "Pendigits, pooled and split at random",
        pendigits_pooled,
        on_pendigits,
        0.60,
        "The 10,992 rows pooled and split at random, so that test writers are known: not the standard split.",
    ),
    Spec(
        "risvo",
        "basis-size",
        "A random basis against basis construction",
        mnist,
        basis_of_mnist,
        product(landmarks=["uniform", "basis"], n_landmarks=[100, 700, 1000, 1300, 1600, 1900]),
        seeds=(0, 1, 2, 3, 4),
        extras=what_was_left,
        views=(Curve(x="n_landmarks", series=("landmarks",)), Table(metrics=("error", "seconds", "active"))),
        paper_says=tuple(
            Reference(value, "Table 2", {"landmarks": rule, "n_landmarks": m})
            for rule, values in (
                ("uniform", (10.12, 4.20, 3.57, 3.38, 3.0, 2.99)),
                ("basis", (9.78, 3.98, 3.51, 3.33, 2.95, 2.92)),
            )
            for m, value in zip((100, 700, 1000, 1300, 1600, 1900), values, strict=True)
        ),
        on="MNIST",
        about="Does choosing patterns that point away from the span beat choosing at random? Active set until stable.",
        headline={"landmarks": "basis", "n_landmarks": 1900},
        chosen="the paper's rule and its largest basis",
        quick={
            "data": digits,
            "on": QUICK_DATA,
            "estimator": on_digits,
            "grid": product(landmarks=["uniform", "basis"], n_landmarks=[20, 60, 180]),
            "seeds": (0, 1),
        },
    ),
    Spec(
        "risvo",
        "landmark-rules",
        "What each landmark rule buys, and what it costs",
        letter,
        rule_on_letter,
        product(landmarks=sorted(LANDMARKS), n_landmarks=[250, 500, 1000]),
        seeds=(0, 1, 2),
        extras=kernel_error,
        views=(
            Curve(x="n_landmarks", y="kernel_error", series=("landmarks",), log_y=True),
            Curve(x="n_landmarks", series=("landmarks",)),
            Curve(x="n_landmarks", y="seconds", series=("landmarks",)),
            Table(metrics=("error", "kernel_error", "seconds")),
        ),
        on="Letter Recognition",
        about="Kernel error: the share of the kernel's trace that the landmarks leave out. No active set.",
        headline={"landmarks": "uniform", "n_landmarks": 1000},
        chosen="the simplest rule with the most landmarks",
        quick={
            "data": digits,
            "on": QUICK_DATA,
            "estimator": on_digits,
            "grid": product(landmarks=sorted(LANDMARKS), n_landmarks=[30, 60, 120], max_iter=[1]),
            "seeds": (0,),
        },
    ),
)


_DATA = {
    "mnist": ("MNIST", {}),
    "usps": ("USPS", {"settings": "printed"}),
    "letter": ("Letter", {"settings": "printed"}),
    "pendigits": ("Pendigits", {}),
}
_NOTES = {
    "usps": "With a ridge that is chosen on held-out training images the error comes nearer: see the experiment.",
    "letter": "With settings that are chosen on held-out training rows the error comes nearer: see the experiment.",
    "pendigits": "The standard split has test writers that training never saw. On a random split of the pooled rows, which "
    "is another problem, the error is near the paper's figure.",
}
_FIGURES = {"mnist": 2.33, "usps": 4.81, "letter": 2.56, "pendigits": 0.60}

CLAIMS: tuple[Claim, ...] = (
    *(
        Claim(
            f"{_DATA[name][0]} errs {value:.2f} %.",
            "Table 1",
            (Comparison(name, {**_DATA[name][1], "max_iter": 30}, "near", value),),
            note=_NOTES.get(name, ""),
        )
        for name, value in _FIGURES.items()
    ),
    Claim(
        "Selecting an active set improves the classification.",
        "Section 2.2",
        tuple(
            Comparison(name, {**settings, "max_iter": 30}, "below", {**settings, "max_iter": 1}, within=0.0)
            for name, (_, settings) in _DATA.items()
        ),
    ),
    Claim(
        "Inclusion property: a pattern that left the active set would never have come back, on all data sets.",
        "Section 4.1, c",
        tuple(
            Comparison(name, {**settings, "max_iter": 30}, "at most", 0.0, "violations", within=0.0)
            for name, (_, settings) in _DATA.items()
        ),
        note="Counted are the discarded patterns that meet the criteria of the last step.",
    ),
    Claim(
        "Basis construction errs less than a random basis of the same size.",
        "Section 4.2, Table 2",
        (
            Comparison(
                "basis-size",
                {"landmarks": "basis"},
                "below",
                {"landmarks": "uniform"},
                along="n_landmarks",
                within=0.0,
            ),
        ),
    ),
    *(
        Claim(
            f"{words} of 100 to 1,900 patterns err as in Table 2.",
            "Table 2",
            tuple(
                Comparison("basis-size", {"landmarks": rule, "n_landmarks": m}, "near", value)
                for m, value in zip((100, 700, 1000, 1300, 1600, 1900), values, strict=True)
            ),
        )
        for words, rule, values in (
            ("Random bases", "uniform", (10.12, 4.20, 3.57, 3.38, 3.0, 2.99)),
            ("Constructed bases", "basis", (9.78, 3.98, 3.51, 3.33, 2.95, 2.92)),
        )
    ),
    Claim(
        "The cost grows as the cube of the basis, and its order does not depend on the number of classes.", "Section 4.1, a"
    ),
)
