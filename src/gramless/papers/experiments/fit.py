"""One fit of an experiment in its own process, from data to a record of plain JSON.

The data is loaded, the features are computed, and the estimator is fitted and predicts. Cross-validation and extra metrics
follow last, so that the reported peak memory is the peak of the fit and of the prediction.
"""

from __future__ import annotations

import base64
import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.metrics import accuracy_score, balanced_accuracy_score, confusion_matrix
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import Pipeline

from gramless._core import arrays as xa
from gramless._core.memory import free_memory
from gramless._core.targets.columns import scores_to_labels
from gramless.linalg.operators import evaluate
from gramless.papers.datasets import Dataset
from gramless.papers.experiments.declarations import Gallery, Params, Spec
from gramless.papers.experiments.environment import environment, peak_mb, reset_peak

Notify = Callable[[str, Mapping[str, Any]], None]
"""Progress callback, called with the stage of a fit and a dict of details such as the iteration."""

MAX_CONFUSION_CLASSES = 30
# Largest size of a kernel block in bytes; 10,000 test rows against 60,000 training rows in float32 take 2.4 GB.
MAX_BLOCK_BYTES = 3_000_000_000
# Seconds between two progress notifications.
NOTIFY_INTERVAL = 0.1


def run_fit(spec: Spec, params: Params, seed: int, *, device: str | None = None, notify: Notify) -> dict[str, Any]:
    """Fit one grid point and return the record as plain JSON; warnings are counted in the record and not printed."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        record = _measure(spec, params, seed, device, notify)
    messages = Counter(f"{warning.category.__name__}: {warning.message}" for warning in caught)
    record["warnings"] = [{"message": message, "count": count} for message, count in messages.items()]
    return to_json(record)


def _measure(spec: Spec, params: Params, seed: int, device: str | None, notify: Notify) -> dict[str, Any]:
    notify("loading data", {})
    dataset = original = spec.dataset(seed)
    feature_seconds = 0.0
    if spec.features is not None:
        notify("computing features", {})
        transformer = spec.features(params, seed)
        started = time.perf_counter()
        x_train = transformer.fit_transform(dataset.x_train, dataset.y_train)
        dataset = replace(dataset, x_train=x_train, x_test=transformer.transform(dataset.x_test))
        feature_seconds = time.perf_counter() - started
    estimator = spec.estimator(params, seed)
    if device is not None:
        names = [name for name in estimator.get_params() if name == "device" or name.endswith("__device")]
        estimator.set_params(**dict.fromkeys(names, device))
    unfitted = clone(estimator)
    last = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
    monitor = FitMonitor(notify, dataset.x_test, dataset.y_test, every=spec.evaluate_every)
    # The last step of a pipeline predicts transformed rows, but the monitor has only test rows that are not transformed.
    if "callback" in last.get_params(deep=False) and (last is estimator or not spec.evaluate_every):
        last.set_params(callback=monitor)
    elif spec.evaluate_every:
        raise TypeError(
            f"{spec.paper}/{spec.name} evaluates during the fit, but {type(estimator).__name__} has no `callback` parameter"
        )

    notify("fitting", {})
    peak_was_reset = reset_peak()
    started, started_cpu = time.perf_counter(), time.process_time()
    estimator.fit(dataset.x_train, dataset.y_train)
    seconds = time.perf_counter() - started - monitor.seconds
    cpu_seconds = time.process_time() - started_cpu - monitor.cpu_seconds
    notify("predicting", {})
    started = time.perf_counter()
    predicted = estimator.predict(dataset.x_test)
    predict_seconds = time.perf_counter() - started
    peak = monitor.peak_without_block(peak_mb())

    accuracy, balanced = (100 * score(dataset.y_test, predicted) for score in (accuracy_score, balanced_accuracy_score))
    metrics = {
        "error": 100 - accuracy,
        "accuracy": accuracy,
        "balanced_error": 100 - balanced,
        "balanced_accuracy": balanced,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "predict_seconds": predict_seconds,
        "feature_seconds": feature_seconds,
        "peak_mb": peak,
    }
    record = {
        "data": {
            "name": dataset.name,
            "n_train": len(dataset.y_train),
            "n_test": len(dataset.y_test),
            "n_features": int(dataset.x_train.shape[1]),
            "split": dataset.split,
        },
        "estimator": repr(unfitted.steps[-1][1] if isinstance(unfitted, Pipeline) else unfitted),
        "metrics": metrics,
        "peak_since": "fit" if peak_was_reset else "process start",
        "history": [six_digits(row) for row in monitor.with_errors(getattr(last, "history_", None) or [])],
        **_mistakes(spec, original, predicted),
        **environment(device),
    }
    if spec.folds:
        notify("cross-validating", {})
        splitter = StratifiedKFold(spec.folds, shuffle=True, random_state=seed)
        started = time.perf_counter()
        validated = cross_val_predict(unfitted, dataset.x_train, dataset.y_train, cv=splitter)
        cv_seconds = time.perf_counter() - started
        cv_accuracy = 100 * accuracy_score(dataset.y_train, validated)
        metrics |= {"cv_error": 100 - cv_accuracy, "cv_accuracy": cv_accuracy, "cv_seconds": cv_seconds}
    if spec.extras is not None:
        notify("computing extra metrics", {})
        metrics |= spec.extras(estimator, dataset)
    if spec.pictures is not None:
        record["pictures"] = spec.pictures(estimator, dataset)
    return record


class FitMonitor:
    """Callback of an estimator that reports progress and measures the test error every `every` iterations (0: never).

    In a kernel expansion f(x) = sum a_i K(x, b_i) + bias, only the coefficients a_i change during a fit. The kernel block
    between the test rows and the points b_i is therefore computed once, and each measurement of the error costs one matrix
    product. `seconds` and `cpu_seconds` are the time spent in this callback, which is not counted as time of the fit.
    """

    def __init__(self, notify: Notify, x_test: Any, y_test: np.ndarray, *, every: int):
        self.notify = notify
        self.x_test = x_test
        self.y_test = y_test
        self.every = every
        self.errors: dict[int, float] = {}
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self.block_mb = 0.0
        self.peak_before_block_mb = 0.0
        self._block: Any = None
        self._block_points: np.ndarray | None = None
        self._last_notified = 0.0

    def __call__(self, estimator: Any, record: Mapping[str, Any]) -> bool:
        started, started_cpu = time.perf_counter(), time.process_time()
        n_iter = int(record["n_iter"])
        if self.every and n_iter % self.every == 0:
            self.errors[n_iter] = 100 * (1 - accuracy_score(self.y_test, self._predict(estimator)))
        if time.monotonic() - self._last_notified > NOTIFY_INTERVAL:
            self._last_notified = time.monotonic()
            error = next(reversed(self.errors.values()), None)
            self.notify("fitting", {"n_iter": n_iter, "max_iter": getattr(estimator, "max_iter", None), "error": error})
        self.seconds += time.perf_counter() - started
        self.cpu_seconds += time.process_time() - started_cpu
        return False

    def peak_without_block(self, peak: float) -> float:
        """Return the peak memory in MB of the fit without the kernel block of this monitor."""
        return max(peak - self.block_mb, self.peak_before_block_mb)

    def with_errors(self, history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the training history of the estimator, with the measured test errors added at their iterations."""
        rows = {row["n_iter"]: dict(row) for row in history}
        for n_iter, error in self.errors.items():
            rows.setdefault(n_iter, {"n_iter": n_iter})["error"] = error
        return [rows[n_iter] for n_iter in sorted(rows)]

    def _predict(self, estimator: Any) -> np.ndarray:
        """Return the predictions for the test rows; kernel expansions use a cached kernel block if it fits into memory."""
        points = getattr(estimator, "points_", None)
        if not isinstance(points, np.ndarray) or not isinstance(self.x_test, np.ndarray):
            return estimator.predict(self.x_test)
        device = estimator.device_
        if self._block_points is not points:
            n_bytes = len(self.x_test) * len(points) * points.dtype.itemsize
            if n_bytes > min(MAX_BLOCK_BYTES, free_memory(device) // 4):
                return estimator.predict(self.x_test)
            self.peak_before_block_mb = max(self.peak_before_block_mb, peak_mb())
            rows = xa.to_device(self.x_test.astype(points.dtype, copy=False), device)
            self._block = evaluate(estimator.kernel_, rows, xa.to_device(points, device))
            self._block_points, self.block_mb = points, n_bytes / 1e6 if device == "cpu" else 0.0
        coef = np.asarray(estimator.dual_coef_).reshape(len(points), -1)
        scores = xa.to_numpy(self._block @ xa.to_device(coef, device)) + np.asarray(estimator.intercept_)
        return scores_to_labels(estimator.classes_, scores)


def _mistakes(spec: Spec, original: Dataset, predicted: np.ndarray) -> dict[str, Any]:
    """Return the confusion matrix and, if the experiment has a `Gallery`, the first misclassified test images."""
    labels = np.unique(np.concatenate([original.y_train, original.y_test]))
    names = dict(zip(labels, original.class_names or map(str, labels), strict=True))
    found: dict[str, Any] = {}
    if len(labels) <= MAX_CONFUSION_CLASSES:
        counts = confusion_matrix(original.y_test, predicted, labels=labels)
        found["confusion"] = {"labels": list(names.values()), "counts": counts}
    limit = max((view.limit for view in spec.views if isinstance(view, Gallery)), default=0)
    if limit and original.image_shape is not None:
        wrong = np.flatnonzero(predicted != original.y_test)
        is_bytes = original.x_test.dtype == np.uint8
        low, high = (0, 255) if is_bytes else (original.x_test.min(), original.x_test.max())
        images = [
            {
                "index": row,
                "true": names[original.y_test[row]],
                "predicted": names[predicted[row]],
                "pixels": encode_pixels(original.x_test[row], low, high),
            }
            for row in wrong[:limit]
        ]
        found["misclassified"] = {"total": len(wrong), "image_shape": original.image_shape, "images": images}
    return found


def encode_pixels(pixels: np.ndarray, low: float, high: float) -> str:
    """Scale pixels from [low, high] to bytes and return them in base64."""
    scaled = (np.asarray(pixels, dtype=np.float64) - float(low)) * (255 / max(float(high) - float(low), 1e-12))
    return base64.b64encode(np.rint(scaled).astype(np.uint8).tobytes()).decode()


def six_digits(row: Mapping[str, Any]) -> dict[str, Any]:
    """Round the numbers of an entry of the training history to six digits, because a record has hundreds of entries."""
    return {key: float(f"{value:.6g}") if isinstance(value, float) else value for key, value in row.items()}


def to_json(record: Mapping[str, Any]) -> dict[str, Any]:
    """Convert NumPy values to the types of JSON; NaN and infinities become None."""
    text = json.dumps(record, default=lambda value: value.tolist())
    return json.loads(text, parse_constant=lambda name: None)
