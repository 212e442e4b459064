"""One fit of one experiment, from data to a record of plain JSON. Runs in a process of its own.

The order is load, features, fit, predict, then whatever costs extra (cross-validation, `extras`), so that
the peak memory that is reported belongs to the fit and its prediction and to nothing else.
"""

from __future__ import annotations

import base64
import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.metrics import accuracy_score, balanced_accuracy_score, confusion_matrix
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import Pipeline

from gramless.papers.datasets import Dataset
from gramless.papers.experiments.environment import environment
from gramless.papers.experiments.memory import peak_mb, reset_peak
from gramless.papers.experiments.monitor import Watch
from gramless.papers.experiments.spec import Params, Spec
from gramless.papers.experiments.views import Gallery

Notify = Callable[[str, Mapping[str, Any]], None]

MOST_CLASSES_IN_A_CONFUSION = 30


def run_fit(spec: Spec, params: Params, seed: int, *, device: str | None = None, notify: Notify) -> dict[str, Any]:
    """Fit `spec` at one point of its grid and return what was measured.

    `notify(stage, detail)` hears of each stage as it begins and of the iterations of the fit. Warnings go
    into the record, each distinct one once with its count, and not to the terminal, where they would tear
    the display.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        record = _measure(spec, params, seed, device, notify)
    messages = Counter(f"{warning.category.__name__}: {warning.message}" for warning in caught)
    record["warnings"] = [{"message": message, "count": count} for message, count in messages.items()]
    return plain(record)


def _measure(spec: Spec, params: Params, seed: int, device: str | None, notify: Notify) -> dict[str, Any]:
    notify("loading data", {})
    original = spec.dataset(seed)
    dataset, feature_seconds = _apply_features(spec, params, seed, original, notify)
    estimator = spec.estimator(params, seed)
    _move_to(estimator, device)
    fresh = clone(estimator)

    def notice(n_iter: int, max_iter: int | None, error: float | None) -> None:
        notify("fitting", {"n_iter": n_iter, "max_iter": max_iter, "error": error})

    watch = Watch(notice, dataset.x_test, dataset.y_test, every=spec.evaluate_every)
    watched = _attach(estimator, watch)
    if spec.evaluate_every and not watched:
        raise TypeError(
            f"{spec.paper}/{spec.name} evaluates while it fits, but {type(estimator).__name__} has no `callback` parameter"
        )

    notify("fitting", {})
    peak_is_ours = reset_peak()
    started = time.perf_counter()
    estimator.fit(dataset.x_train, dataset.y_train)
    seconds = time.perf_counter() - started - watch.seconds
    notify("predicting", {})
    started = time.perf_counter()
    predicted = estimator.predict(dataset.x_test)
    predict_seconds = time.perf_counter() - started
    peak = watch.without_block(peak_mb())

    history = watch.merged(_history(estimator))
    record: dict[str, Any] = {
        "paper": spec.paper,
        "experiment": spec.name,
        "params": dict(params),
        "seed": seed,
        "device": device,
        "data": {
            "name": dataset.name,
            "n_train": len(dataset.y_train),
            "n_test": len(dataset.y_test),
            "n_features": int(dataset.x_train.shape[1]),
            "split": dataset.split,
        },
        "estimator": repr(_last_step(fresh)),
        "metrics": {
            **_scores(dataset.y_test, predicted),
            "seconds": seconds,
            "predict_seconds": predict_seconds,
            "feature_seconds": feature_seconds,
            "peak_mb": peak,
        },
        "peak_since": "fit" if peak_is_ours else "process start",
        "history": history,
        **_mistakes(spec, original, predicted),
        **environment(),
    }
    if spec.folds:
        notify("cross-validating", {})
        record["metrics"].update(_cross_validate(fresh, dataset, spec.folds, seed))
    if spec.extras is not None:
        notify("measuring", {})
        record["metrics"].update(spec.extras(estimator, dataset))
    if spec.pictures is not None:
        record["pictures"] = spec.pictures(estimator, dataset)
    return record


def _apply_features(spec: Spec, params: Params, seed: int, dataset: Dataset, notify: Notify) -> tuple[Dataset, float]:
    transformer = spec.features(params, seed) if spec.features is not None else None
    if transformer is None:
        return dataset, 0.0
    notify("computing features", {})
    started = time.perf_counter()
    x_train = transformer.fit_transform(dataset.x_train, dataset.y_train)
    x_test = transformer.transform(dataset.x_test)
    seconds = time.perf_counter() - started
    return replace(dataset, x_train=x_train, x_test=x_test), seconds


def _last_step(estimator: Any) -> Any:
    return estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator


def _attach(estimator: Any, watch: Watch) -> bool:
    last = _last_step(estimator)
    if "callback" not in last.get_params(deep=False) or (
        isinstance(estimator, Pipeline) and len(estimator.steps) > 1 and watch.every
    ):
        # Inside a pipeline the last step sees transformed rows, which the watch does not have.
        return False
    last.set_params(callback=watch)
    return True


def _move_to(estimator: Any, device: str | None) -> None:
    if device is None:
        return
    for name in estimator.get_params():
        if name == "device" or name.endswith("__device"):
            estimator.set_params(**{name: device})


def _history(estimator: Any) -> list[dict[str, Any]]:
    return [dict(row) for row in getattr(_last_step(estimator), "history_", None) or []]


def _scores(y: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    accuracy = 100 * accuracy_score(y, predicted)
    balanced = 100 * balanced_accuracy_score(y, predicted)
    return {
        "error": 100 - accuracy,
        "accuracy": accuracy,
        "balanced_error": 100 - balanced,
        "balanced_accuracy": balanced,
    }


def _cross_validate(estimator: Any, dataset: Dataset, folds: int, seed: int) -> dict[str, float]:
    splitter = StratifiedKFold(folds, shuffle=True, random_state=seed)
    started = time.perf_counter()
    predicted = cross_val_predict(estimator, dataset.x_train, dataset.y_train, cv=splitter)
    accuracy = 100 * accuracy_score(dataset.y_train, predicted)
    return {
        "cv_error": 100 - accuracy,
        "cv_accuracy": accuracy,
        "cv_seconds": time.perf_counter() - started,
    }


def _mistakes(spec: Spec, original: Dataset, predicted: np.ndarray) -> dict[str, Any]:
    labels = np.unique(np.concatenate([original.y_train, original.y_test]))
    found: dict[str, Any] = {}
    if len(labels) <= MOST_CLASSES_IN_A_CONFUSION:
        found["confusion"] = {
            "labels": list(original.class_names or map(str, labels)),
            "counts": confusion_matrix(original.y_test, predicted, labels=labels),
        }
    limit = max((view.limit for view in spec.views if isinstance(view, Gallery)), default=0)
    if limit and original.image_shape is not None:
        names = dict(zip(labels, original.class_names or map(str, labels), strict=True))
        wrong = np.flatnonzero(predicted != original.y_test)
        found["misclassified"] = {
            "total": len(wrong),
            "image_shape": original.image_shape,
            "images": [
                {
                    "index": row,
                    "true": names[original.y_test[row]],
                    "predicted": names[predicted[row]],
                    "pixels": base64.b64encode(_bytes_of(original.x_test, row)).decode(),
                }
                for row in wrong[:limit]
            ],
        }
    return found


def _bytes_of(images: np.ndarray, row: int) -> bytes:
    if images.dtype == np.uint8:
        return images[row].tobytes()
    low, high = float(images.min()), float(images.max())
    scaled = (images[row].astype(np.float64) - low) * (255 / max(high - low, 1e-12))
    return np.rint(scaled).astype(np.uint8).tobytes()


def plain(value: Any) -> Any:
    """`value` in the types of JSON; numbers that JSON lacks (NaN, infinities) become null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
