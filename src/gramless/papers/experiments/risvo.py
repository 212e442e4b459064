"""Experiments of the paper "risvo": the effect of the active set, of the size of the basis, and of the landmark rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gramless.approximation.landmarks import LANDMARKS, BasisConstruction
from gramless.estimators.risvo import RiSVOClassifier
from gramless.linalg.operators import evaluate
from gramless.papers.datasets import Dataset, load
from gramless.papers.experiments.claims import Claim, Comparison, Printed
from gramless.papers.experiments.spec import QUICK_DATA, Curve, History, Params, Reference, Spec, Table, product

# Rows on which the kernel error is measured.
KERNEL_SAMPLE = 2000

# No active set, one reduction of the active set, and reductions until it is stable.
ONE_SETTING = product(max_iter=[1, 2, 30])
TWO_SETTINGS = (*product(settings=["printed"], max_iter=[1, 30]), *product(settings=["validated"], max_iter=[1, 2, 30]))

# Table 2 of the paper: error in percent by landmark rule, for each size of the basis.
BASIS_SIZES = (100, 700, 1000, 1300, 1600, 1900)
TABLE_2 = {"uniform": (10.12, 4.20, 3.57, 3.38, 3.0, 2.99), "basis": (9.78, 3.98, 3.51, 3.33, 2.95, 2.92)}


def _scaled(name: str, divisor: float) -> Dataset:
    data = load(name)
    x_train, x_test = (np.asarray(x, dtype=np.float32) / np.float32(divisor) for x in (data.x_train, data.x_test))
    return replace(data, x_train=x_train, x_test=x_test)


def _unit_length(data: Dataset) -> Dataset:
    """Scale images to unit length: the paper does not specify this, but its error on MNIST is reached only in this way."""
    x_train, x_test = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (data.x_train, data.x_test))
    return replace(data, x_train=x_train, x_test=x_test)


def mnist(seed: int) -> Dataset:
    return _unit_length(_scaled("mnist", 255))


def usps(seed: int) -> Dataset:
    data = _scaled("usps", 1)  # pixels from -1 to 1
    return _unit_length(replace(data, x_train=(data.x_train + 1) / 2, x_test=(data.x_test + 1) / 2))


def pendigits(seed: int) -> Dataset:
    return _scaled("pendigits", 100)


def pendigits_pooled(seed: int) -> Dataset:
    """Split all 10,992 rows at random, so that the writers of the test rows also wrote training rows."""
    return pendigits(seed).resplit(3498, seed=seed)


def letter(seed: int) -> Dataset:
    return _scaled("letter", 1)


def digits(seed: int) -> Dataset:
    return _scaled("digits", 16)


QUADRATIC = {"kernel": "poly", "degree": 2, "gamma": 1.0, "coef0": 1.0}

# The ridge of the paper, and the one with the lowest error on 1,491 randomly selected validation images.
USPS = {"printed": {"rho": 1e-3}, "validated": {"rho": 1e-1}}
# The settings of the paper, and those with the lowest error on the last 3,000 training rows.
LETTER = {
    "printed": {"landmarks": BasisConstruction(epsilon=0.3), "gamma_l": -1.2, "gamma_u": 1.2, "rho": 1e-3},
    "validated": {"landmarks": "uniform", "gamma_l": -1.0, "gamma_u": 1.0, "rho": 1e-2},
}


def _classifier(params: Params, seed: int, **settings: Any) -> RiSVOClassifier:
    return RiSVOClassifier(random_state=seed, **{"rho": 1e-3, "check_inclusion": True, **settings, **params})


def mnist_classifier(params: Params, seed: int) -> RiSVOClassifier:
    return _classifier(params, seed, n_landmarks=3500, landmarks=BasisConstruction(epsilon=0.5), **QUADRATIC)


def usps_classifier(params: Params, seed: int) -> RiSVOClassifier:
    settings = {"n_landmarks": 3035, "landmarks": "uniform", **USPS[params["settings"]]}
    return _classifier({"max_iter": params["max_iter"]}, seed, **settings, **QUADRATIC)


def letter_classifier(params: Params, seed: int) -> RiSVOClassifier:
    settings = {"n_landmarks": 4000, "gamma": 1 / (2 * 5**2), "dtype": "float64", "zeta_l": -0.7, "zeta_u": 0.7}
    return _classifier({"max_iter": params["max_iter"]}, seed, **settings, **LETTER[params["settings"]])


def pendigits_classifier(params: Params, seed: int) -> RiSVOClassifier:
    settings = {"n_landmarks": 1500, "landmarks": "uniform", "gamma": 1 / (2 * 2.0**2), "gamma_l": -1.0, "gamma_u": 1.0}
    return _classifier(params, seed, **settings)


def digits_classifier(params: Params, seed: int) -> RiSVOClassifier:
    return _classifier(params, seed, n_landmarks=200, gamma=0.1, dtype="float64")


def basis_size_classifier(params: Params, seed: int) -> RiSVOClassifier:
    return _classifier(params, seed, max_iter=30, check_inclusion=False, **QUADRATIC)


def landmark_rule_classifier(params: Params, seed: int) -> RiSVOClassifier:
    return _classifier(params, seed, max_iter=1, check_inclusion=False, gamma=1 / (2 * 5**2), dtype="float64")


def active_set_sizes(model: RiSVOClassifier, data: Dataset) -> dict[str, float]:
    """Return the sizes of the basis and of the active set, and the number of violations of the inclusion property."""
    violations = getattr(model, "inclusion_violations_", np.empty(0))
    return {"n_landmarks": len(model.points_), "active": len(model.active_set_), "violations": len(violations)}


def kernel_error(model: RiSVOClassifier, data: Dataset) -> dict[str, float]:
    """Return the percentage of the kernel's trace outside the span of the landmarks, on a sample of the training rows."""
    sample = np.random.default_rng(0).permutation(len(data.x_train))[:KERNEL_SAMPLE]
    X, points = data.x_train[sample].astype(np.float64), np.asarray(model.points_, dtype=np.float64)
    K = evaluate(model.kernel_, points, points)
    values, vectors = np.linalg.eigh(K)
    keep = values > len(K) * np.finfo(np.float64).eps * values[-1]
    projected = evaluate(model.kernel_, X, points) @ (vectors[:, keep] / np.sqrt(values[keep]))
    outside = 100 * (1 - (projected**2).sum() / model.kernel_.diag(X).sum())
    return {"kernel_error": float(outside), "n_landmarks": len(points)}


def _active_set(name: str, label: str, value: float, finding: str, **fields: Any) -> Spec:
    """Return an experiment of Table 1, whose error in the paper is `value` percent."""
    settings = {"settings": "printed"} if "settings" in fields["grid"][0] else {}
    return Spec(
        "risvo",
        name,
        "Effect of the active set",
        data_label=label,
        evaluate_every=1,
        extras=active_set_sizes,
        views=(
            Table(metrics=("error", "seconds", "active", "violations", "n_landmarks")),
            History(y="error", title="Test error against the step"),
            History(y="training_error", title="Training error (fraction) against the step"),
            History(y="discarded", log_y=True, title="Patterns discarded at the step"),
        ),
        references=(Reference(value, "Table 1", {"max_iter": 30}),),
        about="With one iteration every pattern is used and there is no active set; with two, patterns are discarded once; "
        "with more, until the active set is stable.",
        finding=finding,
        headline={**settings, "max_iter": 30},
        headline_reason="the settings of the paper, until the active set is stable",
        **fields,
    )


def _on_digits(**fields: Any) -> dict[str, Any]:
    return {"data": digits, "data_label": QUICK_DATA, "estimator": digits_classifier, **fields}


SPECS: tuple[Spec, ...] = (
    _active_set(
        "mnist",
        "MNIST",
        2.33,
        "Images of unit length, a polynomial kernel of degree 2, 3,500 landmarks.",
        data=mnist,
        estimator=mnist_classifier,
        grid=ONE_SETTING,
        quick=_on_digits(grid=product(max_iter=[1, 2, 10])),
    ),
    # On the digits, the next four experiments would be the same as the first.
    _active_set(
        "usps",
        "USPS",
        4.81,
        "All 7,291 training images, of unit length, and a polynomial kernel of degree 2; the paper has 3,035 training "
        "patterns and as many landmarks. With the ridge of the paper, and with a ridge chosen on validation images.",
        data=usps,
        estimator=usps_classifier,
        grid=TWO_SETTINGS,
        quick=None,
    ),
    _active_set(
        "letter",
        "Letter Recognition",
        2.56,
        "An RBF kernel, 4,000 landmarks. With the settings of the paper, and with the bounds, the ridge and the number of "
        "steps (5) chosen on validation rows.",
        data=letter,
        estimator=letter_classifier,
        grid=(*product(settings=["printed"], max_iter=[1, 30]), *product(settings=["validated"], max_iter=[1, 2, 5, 30])),
        quick=None,
    ),
    _active_set(
        "pendigits",
        "Pendigits, the standard split",
        0.60,
        "An RBF kernel, 1,500 landmarks. The test rows are from other writers than the training rows, and the error of the "
        "paper is not reached; see the pooled split below.",
        data=pendigits,
        estimator=pendigits_classifier,
        grid=ONE_SETTING,
        quick=None,
    ),
    _active_set(
        "pendigits-pooled",
        "Pendigits, pooled and split at random",
        0.60,
        "The 10,992 rows are pooled and split at random, so that the writers of the test rows also wrote training rows. "
        "This is not the standard split.",
        data=pendigits_pooled,
        estimator=pendigits_classifier,
        grid=ONE_SETTING,
        quick=None,
    ),
    Spec(
        "risvo",
        "basis-size",
        "A random basis and basis construction",
        data=mnist,
        data_label="MNIST",
        about="Is a basis of patterns far from the span of the earlier ones better than a random basis? The active set is "
        "reduced until it is stable.",
        estimator=basis_size_classifier,
        grid=product(landmarks=list(TABLE_2), n_landmarks=list(BASIS_SIZES)),
        seeds=(0, 1, 2, 3, 4),
        extras=active_set_sizes,
        views=(Curve(x="n_landmarks", series=("landmarks",)), Table(metrics=("error", "seconds", "active"))),
        references=tuple(
            Reference(value, "Table 2", {"landmarks": rule, "n_landmarks": m})
            for rule, values in TABLE_2.items()
            for m, value in zip(BASIS_SIZES, values, strict=True)
        ),
        headline={"landmarks": "basis", "n_landmarks": 1900},
        headline_reason="the rule of the paper and its largest basis",
        quick=_on_digits(grid=product(landmarks=["uniform", "basis"], n_landmarks=[20, 60, 180]), seeds=(0, 1)),
    ),
    Spec(
        "risvo",
        "landmark-rules",
        "Error and cost of each landmark rule",
        data=letter,
        data_label="Letter Recognition",
        about="The kernel error is the percentage of the kernel's trace outside the span of the landmarks. No active set.",
        estimator=landmark_rule_classifier,
        grid=product(landmarks=sorted(LANDMARKS), n_landmarks=[250, 500, 1000]),
        seeds=(0, 1, 2),
        extras=kernel_error,
        views=(
            Curve(x="n_landmarks", y="kernel_error", series=("landmarks",), log_y=True),
            Curve(x="n_landmarks", series=("landmarks",)),
            Curve(x="n_landmarks", y="seconds", series=("landmarks",)),
            Table(metrics=("error", "kernel_error", "seconds")),
        ),
        headline={"landmarks": "uniform", "n_landmarks": 1000},
        headline_reason="the simplest rule with the largest number of landmarks",
        quick=_on_digits(grid=product(landmarks=sorted(LANDMARKS), n_landmarks=[30, 60, 120], max_iter=[1]), seeds=(0,)),
    ),
)


# Parameters of the settings of the paper.
_PRINTED: dict[str, Params] = {
    "mnist": {},
    "usps": {"settings": "printed"},
    "letter": {"settings": "printed"},
    "pendigits": {},
}


def _error_claim(name: str, label: str, value: float, note: str = "") -> Claim:
    comparison = Comparison(name, {**_PRINTED[name], "max_iter": 30}, "near", Printed(f"{value:.2f}"))
    return Claim(f"{name}-error", f"The error on {label} is {value:.2f} %.", "Table 1", (comparison,), reason=note)


def _table_2_claim(name: str, label: str, rule: str) -> Claim:
    comparisons = tuple(
        Comparison("basis-size", {"landmarks": rule, "n_landmarks": m}, "near", Printed(f"{value:.2f}"))
        for m, value in zip(BASIS_SIZES, TABLE_2[rule], strict=True)
    )
    return Claim(name, f"{label} of 100 to 1,900 patterns have the errors of Table 2.", "Table 2", comparisons)


CLAIMS: tuple[Claim, ...] = (
    _error_claim("mnist", "MNIST", 2.33),
    _error_claim("usps", "USPS", 4.81, "A ridge chosen on validation images brings the error closer: see the experiment."),
    _error_claim("letter", "Letter", 2.56, "Settings chosen on validation rows bring the error closer: see the experiment."),
    _error_claim(
        "pendigits",
        "Pendigits",
        0.60,
        "In the standard split the test rows are from other writers than the training rows. On a random split of all rows, "
        "which is another problem, the error is near that of the paper.",
    ),
    Claim(
        "active-set",
        "Selecting an active set improves the classification.",
        "Section 2.2",
        tuple(
            Comparison(name, {**settings, "max_iter": 30}, "below", {**settings, "max_iter": 1}, within=0.0)
            for name, settings in _PRINTED.items()
        ),
    ),
    Claim(
        "inclusion",
        "Inclusion property: a pattern that left the active set would never have returned, on all data sets.",
        "Section 4.1, c",
        tuple(
            Comparison(name, {**settings, "max_iter": 30}, "at most", 0.0, "violations", within=0.0)
            for name, settings in _PRINTED.items()
        ),
        reason="Counted are the discarded patterns that satisfy the criteria of the last step.",
    ),
    Claim(
        "basis-construction",
        "Basis construction has a lower error than a random basis of the same size.",
        "Section 4.2, Table 2",
        (
            Comparison(
                "basis-size", {"landmarks": "basis"}, "below", {"landmarks": "uniform"}, along="n_landmarks", within=0.0
            ),
        ),
    ),
    _table_2_claim("random-bases", "Random bases", "uniform"),
    _table_2_claim("constructed-bases", "Constructed bases", "basis"),
    Claim(
        "cubic-cost",
        "The cost grows with the cube of the size of the basis, and its order is independent of the number of classes.",
        "Section 4.1, a",
    ),
)
