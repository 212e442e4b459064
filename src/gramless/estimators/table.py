"""Table models: least-squares kernel models for tables with numbers, categories, dates and missing values.

A fit determines the column types (`gramless.tables.column_types`), selects scaling, kernel, gamma and `C` by closed-form
leave-one-out on a growing sample (`gramless.tables.search`), fits the best settings, or their average, to all rows
(`gramless.tables.members`), and calibrates probabilities on the leave-one-out scores (`gramless.inference.softmax_link`).
Cost: O(n^3) for up to about ten thousand rows; larger tables are split into local partitions of p rows, which cost O(n p^2).
With explicit settings, one `LSSVC`, `NystromLSSVC` or `KernelSVC` is fitted to the same encoded columns.
"""

from __future__ import annotations

import copy
import functools
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone, is_classifier
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from gramless._core.constraints import POSITIVE, estimator
from gramless._core.memory import parse_budget
from gramless._core.progress import log_progress, report_compilation
from gramless._core.validation import atomic_fit, check_labels, check_outputs, check_weights
from gramless.estimators.lssvm import LSSVC, LSSVR
from gramless.estimators.nystrom import NystromLSSVC, NystromLSSVR
from gramless.estimators.one_pass import OnePassEstimator
from gramless.estimators.svm import KernelSVC, KernelSVR
from gramless.inference.feature_process import process_batch_rows
from gramless.inference.intervals import adaptive_scores, prediction_sets, score_thresholds
from gramless.inference.softmax_link import fit_link, link_probabilities, link_scores
from gramless.streaming import Stream
from gramless.tables.attributions import Attributions, shapley_values
from gramless.tables.column_types import (
    LARGEST_NUMBER,
    Encoded,
    TableColumns,
    column_names,
    frame_rows,
    is_frame,
)
from gramless.tables.losses import ClassLoss, ValueLoss, extreme_targets
from gramless.tables.members import FittedMembers, TablePlan, fit_members, plan_table, refit_members, tune_single
from gramless.tables.search import FAST_KERNELS, KERNELS, WIDTHS, SearchOptions
from gramless.tables.tuning import FAST, TUNING, TablesTuning

# Classifier and regressor for each value of the parameter `estimator`.
SINGLE_MODELS: dict[str, tuple[Any, Any]] = {
    "lssvm": (LSSVC, LSSVR),
    "nystrom": (NystromLSSVC, NystromLSSVR),
    "svm": (KernelSVC, KernelSVR),
}


def default_seconds(n: int) -> float:
    """Return the default time budget in seconds, which is 45 for 50,000 rows, 450 for 500,000 rows, and at least 3."""
    return max(3.0, 45.0 * (n / 50_000) ** 0.5, 9e-4 * n)


def single_model(
    name: str, *, classifier: bool, n: int, kernel: str, C: float | str, gamma: Any, probability: bool, **settings: Any
) -> Any:
    """Return an unfitted model of a class of `SINGLE_MODELS`; settings that the class does not have are dropped."""
    cls = SINGLE_MODELS[name][not classifier]
    settings |= {
        "kernel": kernel,
        "C": C,
        "gamma": gamma,
        "probability": "sigmoid" if probability else False,
        "break_ties": True,
        # The exact model uses landmarks only as a preconditioner, and selects their number itself.
        "n_landmarks": None if name == "lssvm" else min(TUNING.landmarks, n),
        "dtype": "float32" if n > TUNING.float32_rows else None,
    }
    known = cls._get_param_names()
    return cls(**{key: value for key, value in settings.items() if key in known and value is not None})


def _fit_landmarks(model: Any, n: int | None, d: int, k: int) -> list[str]:
    """Halve the number of landmarks until a fit of `n` rows fits the memory budget; return messages about the reduction."""
    wanted, learner = model.n_landmarks, model.pass_settings().learner
    while True:
        try:
            plan = model._fit_plan(n, d, k, np.dtype(model.dtype or np.float64), "cpu")
            if plan.solver == "sums" and not is_classifier(model):  # prediction intervals need a sample of the rows
                rows = learner.rows_left_out if n is None else min(n, learner.rows_left_out)
                process_batch_rows(rows, d, model.n_landmarks, k, parse_budget(model.memory_budget))
            break
        except MemoryError:
            if model.n_landmarks < 2:
                raise
            model.set_params(n_landmarks=model.n_landmarks // 2)
    few = model.n_landmarks
    return [] if few == wanted else [f"{few:,} of {wanted:,} landmarks, because of the memory budget"]


def _has_probabilities(estimator: Any) -> bool:
    wanted = estimator.probability
    return estimator.estimator != "svm" if wanted is None else bool(wanted)


def _delegated(method: Any) -> Any:
    """Decorate a prediction method to call the same method of each output's estimator, or of `model_` if present."""
    name = method.__name__

    @functools.wraps(method)
    def delegating(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        check_is_fitted(self)
        if self.outputs_:
            found = [getattr(one, name)(X, *args, **kwargs) for one in self.outputs_]
            return np.column_stack(found) if all(np.ndim(one) == 1 for one in found) else found
        if not hasattr(self.model_, name):
            return method(self, X, *args, **kwargs)
        values = getattr(self.model_, name)(self._scaled(X), *args, **kwargs)
        return self._by_class(values) if name in ("predict_proba", "predict_set") else values

    return delegating


@dataclass(eq=False, repr=False, kw_only=True)
class _TableEstimator(BaseEstimator):
    """Base class of the table estimators: column types, selection of the model, and the fit."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "estimator": [StrOptions({"auto", "table", *SINGLE_MODELS})],
        "kernel": [StrOptions({"auto", *WIDTHS})],
        "C": [POSITIVE, None],
        "gamma": [POSITIVE, StrOptions({"scale", "auto"}), None],
        "preset": [StrOptions({"default", "fast"})],
        "tune": [StrOptions({"loo", "none"})],
        "column_scales": [StrOptions({"learned", "equal"})],
        "text": [StrOptions({"auto", "leave out", "hash"})],
        "dates": [StrOptions({"auto", "day first", "month first", "iso"})],
        "column_types": [dict, None],
        "time_budget": [POSITIVE, None],
    }
    _tuning: TablesTuning = field(default=TUNING, init=False)
    # Defaults for files of version 0.1.0, which do not have these attributes.
    outputs_: Any = field(default=(), init=False)
    model_: Any = field(default=None, init=False)
    preparation_: Any = field(default=None, init=False)

    kernel: str = "auto"
    estimator: str = "auto"
    C: float | None = None
    gamma: float | str | None = None
    preset: str = "default"
    tune: str = "loo"
    column_scales: str = "learned"
    text: str = "auto"
    dates: str = "auto"
    column_types: dict[str, str] | None = None
    time_budget: float | None = None
    memory_budget: str | float | None = None
    device: str | None = None
    callback: Callable[[Any, dict[str, Any]], Any] | None = None
    verbose: int = 0
    random_state: Any = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.target_tags.multi_output = isinstance(self, RegressorMixin)
        return tags

    def _check_table(self, X: Any, *, reset: bool) -> tuple[Any, int]:
        """Return the validated data frame or array, and its number of rows."""
        if isinstance(X, Encoded) and not reset:
            return X, len(X)
        if is_frame(X):
            n, names = frame_rows(X), np.array(column_names(X), dtype=object)
            if n == 0 or len(names) == 0:
                shape = getattr(X, "shape", None)
                raise ValueError(f"Found array with {n} sample(s) and shape {shape}: a minimum of 1 is required.")
            repeated = [name for name, count in Counter(names).items() if count > 1]
            if repeated:
                raise ValueError(f"X has several columns with the name {', '.join(map(repr, repeated))}: rename them")
            if not reset and hasattr(self, "feature_names_in_"):
                self._check_names(names)
            elif hasattr(X, "iloc"):
                validate_data(self, X, reset=reset, skip_check_array=True)
            elif reset:
                self.feature_names_in_, self.n_features_in_ = names, len(names)
            return X, n
        if hasattr(X, "indptr"):
            raise TypeError(
                "Sparse data was passed, but tables must be dense: use X.toarray(), or LSSVC, which accepts sparse data"
            )
        checked = validate_data(self, X, reset=reset, dtype=None, ensure_all_finite="allow-nan")
        if checked.dtype.kind == "O":
            _check_objects(checked)
        return checked, len(checked)

    def _check_names(self, names: np.ndarray) -> None:
        """Raise an error if a column of `fit` is missing, and warn of columns that `fit` did not have."""
        fitted = self.feature_names_in_
        missing = [name for name in self.columns_.type_of if name not in names]
        further = [name for name in names if name not in fitted]
        if missing:
            listed = "".join(f"\n- {name}" for name in further)
            unknown = f"Feature names unseen at fit time:{listed}\n" if further else ""
            listed = "".join(f"\n- {name}" for name in missing)
            raise ValueError(
                "The feature names should match those that were passed during fit.\n"
                f"{unknown}Feature names seen at fit time, yet now missing:{listed}\n"
            )
        if further:
            warnings.warn(
                f"X has columns that fit did not have, which are not used: {', '.join(map(repr, further))}", stacklevel=5
            )

    def _encoded(self, X: Any) -> Encoded:
        check_is_fitted(self, "members_")
        return self.columns_.encode(self._check_table(X, reset=False)[0])

    def _scaled(self, X: Any) -> np.ndarray:
        """Return the standardised columns, which are the input of `model_`."""
        return self._encoded(X).prepared(self.preparation_)

    def _resolve(self, n: int) -> tuple[str, str]:
        """Return the name of the model and the reason for its selection."""
        searchable = self.kernel in ("auto", *KERNELS) and self.tune == "loo" and self.C is None and self.gamma is None
        if self.estimator == "table" and not searchable:
            raise ValueError(
                f"estimator='table' selects C and gamma itself, from the kernels {', '.join(KERNELS)}: do not set C, gamma "
                "or tune, or use estimator='lssvm'"
            )
        if self.kernel == "linear" and self.gamma is not None:
            raise ValueError("the linear kernel has no gamma: do not set gamma, or choose another kernel")
        if self.estimator == "table" or (self.estimator == "auto" and searchable and self.device in (None, "cpu")):
            return "table", f"the model uses all {n:,} rows"
        if self.estimator != "auto":
            return self.estimator, f'estimator="{self.estimator}" was requested'
        if n <= TUNING.exact_rows:
            return "lssvm", f"an exact solution of {n:,} rows is affordable"
        return "nystrom", f"{n:,} rows are approximated by {TUNING.landmarks:,} landmarks"

    @atomic_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model to a table.

        Parameters
        ----------
        X : DataFrame (pandas, polars, arrow) or array of shape (n, n_features)
            Table without the target.
        y : array of shape (n,) or (n, n_outputs)
            Class labels, or values to predict; for several columns, one estimator is fitted to each column.
        sample_weight : array of shape (n,), optional
            Weights of the rows; a weight of 2 equals two copies of the row, and rows of weight 0 are ignored.

        Returns
        -------
        self
            The fitted estimator.
        """
        self._validate_params()
        X, n = self._check_table(X, reset=True)
        self.outputs_ = self._fit_outputs(X, y, sample_weight)
        if self.outputs_:
            return self
        targets, weights = self._read_targets(y, sample_weight, n)
        kept = np.arange(n) if weights is None else np.flatnonzero(weights)
        if len(kept) < 2:
            raise ValueError(f"Found array with {len(kept)} sample(s) of positive weight; a minimum of 2 is required.")
        self.columns_ = TableColumns(text=self.text, types=self.column_types, dates=self.dates).fit(X, targets)
        self._report_columns()
        loss = self._make_loss(targets[kept], None if weights is None else weights[kept])
        predictions = self._fit_encoded(self._encode_training_rows(X, kept, loss), loss)
        if predictions is not None:
            self._calibrate(loss, predictions)
        return self

    def _encode_training_rows(self, X: Any, kept: np.ndarray, loss: ClassLoss | ValueLoss) -> Encoded:
        """Fit effects of categories on the target; return encoded rows of positive weight, with cross-fitted effects."""
        every = np.arange(len(kept))
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        log = loss.can_log
        encoded = self.columns_.encode(X).take(kept)
        rows = np.sort(np.random.RandomState(0).permutation(len(encoded))[: self._tuning.background_rows])
        self.background_ = encoded.numbers[rows], encoded.codes[rows]
        return self.columns_.fit_effects(encoded, loss.targets(every, log), loss.weights_of(every, log), seed)

    def _report_columns(self) -> None:
        """Warn of columns that are not used or should be checked, and log the number of columns of each type."""
        columns = self.columns_
        if not columns.type_of:
            reasons = "; ".join(f"{name!r}: {why}" for name, why in columns.left_out_.items())
            raise ValueError(f"no column of X can be used: {reasons}")
        unused = [f"{name!r} ({why})" for name, why in columns.left_out_.items() if why != "as requested"]
        messages = [f"columns that are not used: {', '.join(unused)}"] if unused else []
        messages += columns.doubts_
        if messages:
            warnings.warn("; ".join(messages) + "; print columns_ for all columns", UserWarning, stacklevel=4)
        counts = Counter(columns.kinds_)
        log_progress(self.verbose, "columns: " + ", ".join(f"{count} {kind}" for kind, count in counts.items()))

    def _fit_outputs(self, X: Any, y: Any, sample_weight: Any) -> list[Any]:
        """Return one fitted estimator for each column of `y`, or an empty list if `y` has one column."""
        shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
        if len(shape) != 2 or shape[1] < 2:
            return []
        seconds = None if self.time_budget is None else self.time_budget / shape[1]
        columns = [y.iloc[:, k] if hasattr(y, "iloc") else np.asarray(y)[:, k] for k in range(shape[1])]
        settings = self.get_params(deep=False) | {"time_budget": seconds}
        fitted = [type(self)(**settings).fit(X, column, sample_weight) for column in columns]
        self.columns_ = fitted[0].columns_
        if is_classifier(self):
            self.classes_: Any = [one.classes_ for one in fitted]
        return fitted

    @atomic_fit
    def refit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the selected settings to other rows, without a search.

        Column types, scaling, kernels and `C` are those that `fit` selected. Call `refit` with all rows, after the model was
        scored on held-out rows.

        Parameters
        ----------
        X : DataFrame (pandas, polars, arrow) or array of shape (n, n_features)
            Table without the target, with the columns of `fit`.
        y : array of shape (n,)
            Class labels, or values to predict; the classes must be those of `fit`.
        sample_weight : array of shape (n,), optional
            Weights of the rows; a weight of 2 equals two copies of the row, and rows of weight 0 are ignored.

        Returns
        -------
        self
            The fitted estimator.
        """
        check_is_fitted(self)
        if self.outputs_:
            raise ValueError("refit is for one output: call it for each estimator of outputs_")
        X, n = self._check_table(X, reset=False)
        selected_for = np.asarray(getattr(self, "classes_", []))
        targets, weights = self._read_targets(y, sample_weight, n)
        classes = np.asarray(getattr(self, "classes_", []))
        if not np.array_equal(classes, selected_for):
            raise ValueError(f"y has the classes {classes}, and the settings were selected for {selected_for}")
        kept = np.arange(n) if weights is None else np.flatnonzero(weights)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* targets are extreme")  # `fit` has issued the warning
            loss = self._make_loss(targets[kept], None if weights is None else weights[kept])
        if any(member.log for member in self.members_) and not loss.has_log:
            raise ValueError(
                "the selected settings fit the logarithm of the target, and y has the value "
                f"{targets[kept].min():g}: call fit"
            )
        self.columns_ = copy.copy(self.columns_)  # copied, because the effects of categories are fitted again
        encoded = self._encode_training_rows(X, kept, loss)
        progress = _Progress(self)
        if self.model_ is not None:
            model = clone(self.model_)
            if hasattr(self.model_, "C_"):
                model.set_params(C=float(self.model_.C_))
            progress.report("fit", f"fitting {type(model).__name__} on {n:,} rows")
            self._fit_model(model, encoded, loss, 0.0)
            return self
        options = self._search_options("table", n, progress)
        fitted = refit_members(self.members_, self.member_weights_, encoded, loss, options)
        self._store(fitted)
        self._calibrate(loss, fitted.predictions)
        return self

    @atomic_fit
    def refit_batches(self, batches: Callable[[], Iterable[tuple[Any, ...]]], n_rows: int | None = None) -> Self:
        """Fit the selected settings to a table larger than memory, which is read in batches.

        Call `refit_batches` after `fit` to a sample of the rows with `estimator="nystrom"`. Column types, categories,
        scaling, kernel and `C` are those selected on the sample.

        Parameters
        ----------
        batches : callable
            Function that returns an iterable of `(X, y)` or `(X, y, sample_weight)` for each pass over the rows.
        n_rows : int or None, default=None
            Number of rows of all batches; None if unknown.

        Returns
        -------
        self
            The fitted estimator.
        """
        check_is_fitted(self)
        if not isinstance(self.model_, OnePassEstimator):
            raise ValueError("tables are fitted in batches with estimator='nystrom' and one output")
        if getattr(self, "loss_", "squared_error") != "squared_error":
            raise ValueError(f"loss={self.loss_!r} needs all rows in memory: fit with loss='squared_error'")

        def prepared() -> Iterator[tuple[Any, ...]]:
            for X, *others in batches():
                yield self.columns_.encode(self._check_table(X, reset=False)[0]).prepared(self.preparation_), *others

        began, selected = time.perf_counter(), self.model_
        n_landmarks = TUNING.landmarks if n_rows is None else min(TUNING.landmarks, n_rows)
        # `solver="sums"` needs one pass for intervals and probabilities; each further pass would encode all rows again.
        # In float32, coefficients fitted to many rows are too inaccurate for a large C, which the search may select.
        model = clone(selected).set_params(C=float(selected.C_), n_landmarks=n_landmarks, solver="sums", dtype="float64")
        if is_classifier(self):
            model.set_params(class_weight=self.class_weight)
        width = self.preparation_.n_columns
        self.reductions_ = _fit_landmarks(model, n_rows, width, len(np.atleast_1d(selected.intercept_)))
        model.fit(Stream(prepared, n_rows=n_rows))
        if is_classifier(self) and not np.array_equal(model.classes_, self.classes_):
            raise ValueError(f"the batches have the classes {model.classes_}, and the sample had {self.classes_}")
        self.model_ = model.finish()
        self.timings_ = {"tune": 0.0, "fit": time.perf_counter() - began}
        return self

    def _read_targets(self, y: Any, sample_weight: Any, n: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the encoded targets of all rows, and their weights."""
        raise NotImplementedError

    def _make_loss(self, targets: np.ndarray, weights: np.ndarray | None) -> Any:
        """Return the loss of the rows with positive weight."""
        raise NotImplementedError

    def _calibrate(self, loss: Any, predictions: np.ndarray) -> None:
        """Store the calibration of a table model, from its leave-one-out predictions."""
        raise NotImplementedError

    def _fit_encoded(self, encoded: Encoded, loss: ClassLoss | ValueLoss) -> np.ndarray | None:
        """Fit to encoded rows; return the leave-one-out predictions of a table model, None for a single model."""
        n = len(encoded)
        name, self.reason_ = self._resolve(n)
        progress = _Progress(self)
        self.model_, self.preparation_ = None, None
        self._store(FittedMembers([], np.empty(0), np.empty(0), {}))
        options = self._search_options(name, n, progress)
        with report_compilation(progress.notify) as message:
            progress.message = message
            if name != "table":
                self._fit_single(name, encoded, loss, options)
            else:
                fitted = fit_members(encoded, loss, options)
        self.stopped_at_ = progress.stopped_at
        if name != "table":
            return None
        self.tuned_ = "leave-one-out"
        self._store(fitted)
        parts = sum(len(member.points) for member in fitted.members) // len(fitted.members)
        self.reason_ += "" if parts == 1 else f", in {parts:,} local partitions"
        shares = zip(fitted.weights, fitted.members, strict=True)
        several = len(fitted.members) > 1
        self.summary_ = "; ".join((f"{w:.0%} " if several else "") + member.description for w, member in shares)
        return fitted.predictions

    def _store(self, fitted: FittedMembers) -> None:
        self.members_, self.member_weights_ = fitted.members, fitted.weights
        self.reductions_, self.timings_ = fitted.reductions, fitted.timings

    def _search_options(self, name: str, n: int, progress: _Progress) -> SearchOptions:
        """Return the options of the search for `n` rows."""
        tuning, kernels = (FAST, FAST_KERNELS) if self.preset == "fast" else (self._tuning, KERNELS)
        seconds = tuning.budget_share * default_seconds(n) if self.time_budget is None else float(self.time_budget)
        return SearchOptions(
            encodings=self.columns_.encodings(),
            kernels=(self.kernel,) if self.kernel != "auto" else kernels if name == "table" else ("rbf",),
            C=self.C,
            gamma=self.gamma,
            tune=self.tune,
            column_scales=self.column_scales,
            seconds=seconds,
            memory=parse_budget(self.memory_budget, "cpu"),
            most_for_matrices=TUNING.default_memory if self.memory_budget is None else np.inf,
            seed=check_random_state(self.random_state).randint(2**31 - 1),
            report=progress.report,
            tuning=tuning,
        )

    def _fit_single(self, name: str, encoded: Encoded, loss: ClassLoss | ValueLoss, options: SearchOptions) -> None:
        """Fit one model to the standardised columns."""
        settings = tune_single(encoded, loss, options)
        classifier, n, report, (kernel,) = is_classifier(self), len(encoded), options.report, options.kernels
        # The Nystrom model selects C by its own leave-one-out on all rows, without a refit.
        own_C = name == "nystrom" and self.C is None and self.tune == "loo"
        model = single_model(
            name,
            classifier=classifier,
            n=n,
            kernel=kernel,
            C="loo" if own_C else settings.C,
            gamma=settings.gamma,
            probability=classifier and _has_probabilities(self),
            device=self.device,
            memory_budget=self.memory_budget,
            random_state=self.random_state,
        )
        message = f"fitting {type(model).__name__} on {n:,} rows"

        def iteration(_: Any, record: dict[str, Any]) -> bool:
            residual = record.get("residual")
            detail = "" if residual is None else f", residual {residual:.1e}"
            return report("fit", f"{message}: iteration {record['n_iter']}{detail}")

        report("fit", message)
        if name == "nystrom":
            self.reductions_ = _fit_landmarks(model, n, settings.preparation.n_columns, loss.n_targets)
        model.set_params(callback=iteration)
        self.preparation_ = settings.preparation
        self._fit_model(model, encoded, loss, settings.seconds)
        model.set_params(callback=None)
        self.tuned_ = settings.tuned + ("; C on all rows" if own_C else "")
        gamma = "" if settings.gamma is None else f", gamma {settings.gamma:.3g}"
        self.summary_ = f"{type(model).__name__}, {kernel} kernel, C {float(getattr(model, 'C_', model.C)):.3g}{gamma}"

    def _fit_model(self, model: Any, encoded: Encoded, loss: ClassLoss | ValueLoss, tune_seconds: float) -> None:
        """Fit a single model to the prepared columns, and store the model."""
        began = time.perf_counter()
        weights = {} if loss.weights is None else {"sample_weight": loss.weights}
        X, labels = self.preparation_(encoded), self.classes_[loss.codes] if isinstance(loss, ClassLoss) else loss.y
        model.fit(X, labels, **weights)
        for _ in range(self._tuning.reweightings if loss.is_robust else 0):
            factors = loss.row_factors(labels - model.predict(X))
            model.fit(X, labels, sample_weight=factors if loss.weights is None else factors * loss.weights)
        if hasattr(model, "finish"):
            model.finish()  # deletes the sums of the normal equations, which are not used again
        self.model_, self.timings_ = model, {"tune": tune_seconds, "fit": time.perf_counter() - began}

    @_delegated
    def explain(self, X: Any, *, n_samples: int = 64, background: Any = None, random_state: Any = None) -> Attributions:
        """Return Shapley values of the columns: how much each column moves each prediction away from the mean prediction.

        The prediction of a classifier is the probability of each class (for two classes, of `classes_[1]`), or the score if
        `predict_proba` is disabled. The values of all columns add up to the difference between the prediction and the mean
        prediction of the background rows. For up to six columns, all subsets are evaluated; for more, random orders.

        Parameters
        ----------
        X : DataFrame or array
            Rows to explain, with the columns of the training table.
        n_samples : int, default=64
            Number of background rows; each is evaluated with a random order of the columns and the reverse order. The
            standard errors are proportional to `n_samples ** -0.5`.
        background : DataFrame or array, optional
            Background rows, whose values replace columns that are not in a subset; None uses 100 training rows.
        random_state : int, RandomState or None, default=None
            Seed or generator that draws background rows and orders of the columns.

        Returns
        -------
        Attributions
            Object with column `names`, Shapley `values`, standard errors `errors`, and mean predictions `base`.
        """
        if n_samples < 2:
            raise ValueError(f"n_samples must be at least 2, because standard errors need two samples; got {n_samples}")
        encoded = self._encoded(X)
        others = Encoded(*self.background_) if background is None else self._encoded(background)
        places, rng = self.columns_.encoded_places(), check_random_state(random_state)
        return shapley_values(self._explained, encoded, others, places, n_samples, rng)

    def _explained(self, encoded: Encoded) -> np.ndarray:
        """Return the predictions that `explain` divides among the columns."""
        encoded = self.columns_.with_effects(encoded.numbers, encoded.codes)
        if not is_classifier(self):
            return self.predict(encoded)
        if not hasattr(self, "predict_proba"):
            return self.decision_function(encoded)
        found = self.predict_proba(encoded)
        return found[:, 1] if found.shape[1] == 2 else found

    @property
    def feature_importances_(self) -> np.ndarray:
        """Mean absolute Shapley value of each column over a sample of training rows, divided by the sum over all columns."""
        check_is_fitted(self)
        if self.outputs_:
            return np.mean([one.feature_importances_ for one in self.outputs_], axis=0)
        rows = Encoded(*self.background_).take(slice(self._tuning.explained_rows))
        found = self.explain(rows, n_samples=self._tuning.importance_samples, random_state=0)
        sizes = np.abs(found.values).reshape(*found.values.shape[:2], -1).mean(axis=(0, 2))
        by_name = dict(zip(found.names, sizes / (sizes.sum() or 1.0), strict=True))
        return np.array([by_name.get(name, 0.0) for name in self.columns_.names_])

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the numeric features to which the kernel is applied.

        Parameters
        ----------
        input_features : array of str or None, default=None
            Ignored: the names are those of the columns of `fit`.

        Returns
        -------
        ndarray of str
            Names of numbers and dates, of indicators of missing values (`"x missing"`) and of categories (`"city=Bern"`).
        """
        check_is_fitted(self)
        if self.outputs_:
            return self.outputs_[0].get_feature_names_out()
        preparation = self.preparation_ if self.model_ is not None else self.members_[0].preparation
        numbers, levels = self.columns_.encoded_names(preparation.n_levels, preparation.effects)
        missing = [f"{numbers[k]} missing" for k in preparation.with_missing_]
        return np.array([*numbers, *missing, *levels], dtype=object)

    def _fit_plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> TablePlan:
        """Return the memory plan of a fit of `n` rows and `d` features; `MemoryError` if `memory_budget` is too small."""
        return plan_table(n, d, n_outputs, SearchOptions(memory=parse_budget(self.memory_budget, "cpu")))


class _Progress:
    """Reports the progress of a fit to standard error and to the callback of the estimator, and checks the time budget."""

    def __init__(self, estimator: _TableEstimator):
        self.estimator, self.stage, self.is_stopped = estimator, "columns", False
        self.stopped_at: str | None = None
        self.message: Callable[[str], None] = self.notify
        limit, began = estimator.time_budget or np.inf, time.perf_counter()
        self.deadlines = {"search": began + (1 - estimator._tuning.shares["fit"]) * limit, "fit": began + limit}

    def report(self, stage: str, message: str) -> bool:
        """Report a message; return True if the callback requested to stop, or if the time budget of the stage is used up."""
        self.stage = stage
        self.message(message)
        stop = self.is_stopped or time.perf_counter() > self.deadlines.get(stage, np.inf)
        if stop and self.stopped_at is None:
            self.stopped_at = message
            log_progress(self.estimator.verbose, f"stopped at: {message}")
        return stop

    def notify(self, message: str) -> None:
        """Write the message and call the callback."""
        log_progress(self.estimator.verbose - 1, message)
        callback = self.estimator.callback
        if callback is not None and callback(self.estimator, {"stage": self.stage, "message": message}) is True:
            self.is_stopped = True


def _check_objects(X: np.ndarray) -> None:
    for value in X.ravel():
        if isinstance(value, (dict, list, tuple, np.ndarray)):
            raise TypeError(f"argument must be a string or a number, not {type(value).__name__!r}")
        if isinstance(value, float) and np.isinf(value):
            raise ValueError("Input X contains infinity: leave such cells empty (NaN)")


@estimator
class TableClassifier(ClassifierMixin, _TableEstimator):
    """Classifier for tables (DataFrames of pandas, polars or arrow, or arrays) that needs no preprocessing and no tuning.

    Prefer `TableClassifier` over a scikit-learn pipeline of `ColumnTransformer` and `SVC` for tables with categories, dates
    or missing values.

    Parameters
    ----------
    kernel : {"auto", "rbf", "matern52", "exponential", "laplacian", "matern32", "poly", "linear"}, default="auto"
        Kernel function. `"auto"` compares `"rbf"`, `"matern52"`, `"exponential"` and `"laplacian"` by leave-one-out in the
        search, and is `"rbf"` for a single model; `"matern32"`, `"poly"` and `"linear"` are for single models only.
    C : float or None, default=None
        Inverse regularisation strength; a larger value fits the training rows more closely. None selects the value by
        leave-one-out.
    gamma : float, "scale", "auto" or None, default=None
        Coefficient of a kernel given by name; `"scale"` is `1 / (n_features * X.var())` and `"auto"` is `1 /
        n_features`. `X` is the matrix of the standardised columns; None selects the value by leave-one-out.
    estimator : {"auto", "table", "lssvm", "nystrom", "svm"}, default="auto"
        Model that is fitted to the preprocessed data. `"table"` is the average of exact least-squares models that the search
        selects. The others are single models on standardised columns: `LSSVC` or `LSSVR`, `NystromLSSVC` or `NystromLSSVR`,
        and `KernelSVC` or `KernelSVR`. `"auto"` is `"table"` unless `C`, `gamma`, `tune="none"`, a device other than the CPU
        or a kernel that the search does not compare is given; then it is `"lssvm"` up to 20,000 rows and `"nystrom"` above.
    preset : {"default", "fast"}, default="default"
        Amount of search for `"table"`: `"fast"` has a fifth of the default time budget, compares two kernels and averages at
        most two settings.
    tune : {"loo", "none"}, default="loo"
        Method that selects `C` and `gamma` if they are None: leave-one-out, or the defaults `C=1.0` and `gamma="scale"`.
    column_scales : {"learned", "equal"}, default="learned"
        Scales of the columns in the distances of the kernel: `"learned"` also tries scales that are learned by the gradient
        of the leave-one-out loss.
    text : {"auto", "leave out", "hash"}, default="auto"
        Treatment of a column whose strings differ in almost every row: hashed TF-IDF values of the words, or no features.
        `"auto"` uses the values if a ridge regression on the values predicts left-out targets better than the mean.
    dates : {"auto", "day first", "month first", "iso"}, default="auto"
        Order of the day and the month in dates such as `06/12/2023`; `"auto"` derives the order from days above 12 in the
        column. `"iso"` accepts only dates that begin with the year.
    column_types : dict or None, default=None
        Types of columns by name: `"number"`, `"category"`, `"date"`, `"text"` or `"left out"`; types of other columns are
        determined from their values.
    time_budget : float or None, default=None
        Seconds that the fit may take. The budget determines how many rows the search uses, how many settings are averaged
        and how large local partitions are, from the number of operations at a nominal speed. On a slower computer the search
        stops when its time is used up. None is the same work on every computer, so that the model does not depend on the
        speed: about 2 to 3 seconds for 1,000 rows, 15 for 5,000, 45 for 50,000 and 450 for 500,000.
    probability : bool or None, default=None
        Method that converts scores to the probabilities of `predict_proba`; False disables `predict_proba`. None is
        True except for `estimator="svm"`, whose probabilities need five further fits.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied with `sample_weight`; `"balanced"` weights each class by the inverse of its
        frequency.
    metric : str or None, default=None
        Criterion of the leave-one-out predictions by which settings are compared; None is the loss. For classes
        `"log_loss"`, `"accuracy"` or `"average_precision"` (mean over the classes), for values `"squared_error"` or
        `"absolute_error"`.
    device : {"cpu", "cuda", "auto"} or None, default=None
        Device of the computation; None uses the device of the data.
    memory_budget : str, int, float or None, default=None
        Upper bound on the memory that the fit allocates: a string such as `"4GB"`, a number of bytes, or a fraction of
        the free memory if at most 1; None is 70 % of the free memory.
    callback : callable or None, default=None
        Function `callback(estimator, record)` called with the partially fitted estimator and a dict of progress values;
        returning True stops the fit. The function is called for every evaluated setting and every solved partition, with the
        keys `"stage"` and `"message"`; after True, the best settings so far are fitted.
    verbose : int, default=0
        If positive, write progress messages to standard error.
    random_state : int, RandomState or None, default=None
        Seed or generator for all random choices of the fit; an int makes the fit reproducible.

    Attributes
    ----------
    classes_ : ndarray
        Class labels.
    columns_ : TableColumns
        Type, preprocessing and missing values of each column, and reasons for excluded columns; printing shows a table.
    feature_importances_ : ndarray of shape (n_features,)
        Mean absolute Shapley value of each column over a sample of training rows (see `explain`), divided by the sum over
        all columns; computed at each access.
    background_ : tuple of ndarray
        Encoded numbers and codes of categories of a sample of training rows, the background rows of `explain`.
    outputs_ : list of estimator
        One fitted estimator for each column of `y`, whose predictions are combined; empty if `y` has one column.
    members_, member_weights_ : list of TableMember, ndarray
        Fitted settings and their weights in the average; empty for a single model.
    model_ : estimator or None
        Fitted single model; None for `"table"`.
    preparation_ : Preparation or None
        Standardisation of the columns before `model_`.
    link_ : ndarray
        Parameters of the calibrated softmax of a table model.
    loo_probabilities_ : ndarray of shape (n, n_classes)
        Leave-one-out probabilities of the training rows with positive weight, for a table model.
    calibration_scores_ : ndarray of shape (n,)
        Score of the true class of each row of `loo_probabilities_`, used by `predict_set`.
    calibration_codes_ : ndarray of int of shape (n,)
        Class of each row of `calibration_scores_`, as a position in `classes_`.
    summary_ : str
        Description of the selected settings.
    reason_ : str
        Why this model was chosen.
    tuned_ : str
        How settings that were None were selected; `"no"` if no setting was selected.
    reductions_ : list of str
        Reductions that the time or memory budget required.
    stopped_at_ : str or None
        Step at which the time budget or the callback stopped the fit; None if no step was left out.
    timings_ : dict
        Seconds of `"tune"` and `"fit"`.

    See Also
    --------
    TableRegressor : The regressor.
    LSSVC : Single kernel classifier with explicit settings.

    References
    ----------
    Suykens and Vandewalle, "Least squares support vector machine classifiers", 1999.
    Cawley and Talbot, "Fast exact leave-one-out cross-validation of sparse least-squares support vector machines", 2004.

    Examples
    --------
    >>> import pandas as pd
    >>> from gramless import TableClassifier
    >>> frame = pd.DataFrame({"height": [1.0, 1.2, 5.0, 5.5] * 10, "leaf": ["oval", "oval", "needle", None] * 10})
    >>> model = TableClassifier(random_state=0).fit(frame, ["bush", "bush", "tree", "tree"] * 10)
    >>> model.predict(pd.DataFrame({"height": [5.2], "leaf": ["needle"]}))
    array(['tree'], dtype='<U4')
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **_TableEstimator._parameter_constraints,
        "probability": ["boolean", None],
        "metric": [StrOptions({"log_loss", "accuracy", "average_precision"}), None],
    }

    probability: bool | None = None
    class_weight: Any = None
    metric: str | None = None

    def _read_targets(self, y: Any, sample_weight: Any, n: int) -> tuple[np.ndarray, np.ndarray | None]:
        self.classes_, codes = check_labels(y, n)
        weights = check_weights(sample_weight, np.empty((n, 1)), codes, self.classes_, self.class_weight)
        if len(np.unique(codes if weights is None else codes[weights > 0])) < 2:
            raise ValueError("The number of classes with a positive sample weight has to be greater than one; got 1 class")
        return codes, weights

    def _make_loss(self, targets: np.ndarray, weights: np.ndarray | None) -> ClassLoss:
        return ClassLoss(targets, len(self.classes_), weights, self.metric)

    def _calibrate(self, loss: ClassLoss, predictions: np.ndarray) -> None:
        codes = loss.codes
        self.link_ = fit_link(predictions, codes, len(self.classes_), loss.weights)
        self.loo_probabilities_ = link_probabilities(predictions, self.link_)
        share = check_random_state(self.random_state).random_sample(len(codes))
        scores = adaptive_scores(self.loo_probabilities_, share)
        self.calibration_scores_, self.calibration_codes_ = scores[np.arange(len(codes)), codes], codes

    @available_if(lambda self: self.estimator != "svm" and _has_probabilities(self))
    @_delegated
    def predict_set(self, X: Any, coverage: float = 0.9, *, per_class: bool = False, random_state: Any = None) -> np.ndarray:
        """Return sets of classes that contain the true class with a given probability.

        The sets are adaptive prediction sets from leave-one-out probabilities: uncertain rows get large sets. A set may be
        empty if the coverage is below the accuracy.

        Parameters
        ----------
        X : DataFrame or array
            Rows with the columns of the training table.
        coverage : float, default=0.9
            Probability between 0 and 1 that a set contains the true class.
        per_class : bool, default=False
            Whether the coverage holds for the rows of each class separately, instead of for all rows together.
        random_state : int, RandomState or None, default=None
            Seed or generator of the random numbers that make the coverage exact.

        Returns
        -------
        ndarray of bool of shape (n, n_classes)
            Membership of each class, in the order of `classes_`.
        """
        chances = self.predict_proba(X)
        own, codes = self.calibration_scores_, self.calibration_codes_
        return prediction_sets(chances, own, codes, coverage, per_class=per_class, random_state=random_state)

    @_delegated
    def decision_function(self, X: Any) -> np.ndarray:
        """Return class scores; the scores of a table model are calibrated, and their softmax is `predict_proba`.

        Parameters
        ----------
        X : DataFrame or array
            Rows with the columns of the training table.

        Returns
        -------
        ndarray of shape (n,) or (n, n_classes)
            For two classes one score, positive for `classes_[1]` (log odds for a table model); else one score per class.
        """
        scores = link_scores(self._scores(X), self.link_)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def _scores(self, X: Any) -> np.ndarray:
        encoded = self._encoded(X)
        shares = zip(self.member_weights_, self.members_, strict=True)
        return np.sum([w * member.scores(encoded) for w, member in shares], axis=0)

    def _by_class(self, values: np.ndarray) -> np.ndarray:
        """Return columns in the order of `classes_`; classes without positive weight have no column in `model_`."""
        if values.shape[1] == len(self.classes_):
            return values
        out = np.zeros((len(values), len(self.classes_)), dtype=values.dtype)
        out[:, np.searchsorted(self.classes_, self.model_.classes_)] = values
        return out

    @available_if(_has_probabilities)
    @_delegated
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return calibrated class probabilities.

        Parameters
        ----------
        X : DataFrame or array
            Rows with the columns of the training table.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Probabilities in the order of `classes_`.
        """
        return link_probabilities(self._scores(X), self.link_)

    @_delegated
    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class of each row.

        Parameters
        ----------
        X : DataFrame or array
            Rows with the columns of the training table.

        Returns
        -------
        ndarray of shape (n,)
            Class labels.
        """
        scores = self._scores(X)
        return self.classes_[link_probabilities(scores, self.link_).argmax(axis=1)]


@estimator
class TableRegressor(RegressorMixin, _TableEstimator):
    """Regressor for tables (DataFrames of pandas, polars or arrow, or arrays) that needs no preprocessing and no tuning.

    Prefer `TableRegressor` over a scikit-learn pipeline of `ColumnTransformer` and `SVR` for tables with categories, dates
    or missing values.

    Parameters
    ----------
    kernel : {"auto", "rbf", "matern52", "exponential", "laplacian", "matern32", "poly", "linear"}, default="auto"
        Kernel function. `"auto"` compares `"rbf"`, `"matern52"`, `"exponential"` and `"laplacian"` by leave-one-out in the
        search, and is `"rbf"` for a single model; `"matern32"`, `"poly"` and `"linear"` are for single models only.
    C : float or None, default=None
        Inverse regularisation strength; a larger value fits the training rows more closely. None selects the value by
        leave-one-out.
    gamma : float, "scale", "auto" or None, default=None
        Coefficient of a kernel given by name; `"scale"` is `1 / (n_features * X.var())` and `"auto"` is `1 /
        n_features`. `X` is the matrix of the standardised columns; None selects the value by leave-one-out.
    estimator : {"auto", "table", "lssvm", "nystrom", "svm"}, default="auto"
        Model that is fitted to the preprocessed data. `"table"` is the average of exact least-squares models that the search
        selects. The others are single models on standardised columns: `LSSVC` or `LSSVR`, `NystromLSSVC` or `NystromLSSVR`,
        and `KernelSVC` or `KernelSVR`. `"auto"` is `"table"` unless `C`, `gamma`, `tune="none"`, a device other than the CPU
        or a kernel that the search does not compare is given; then it is `"lssvm"` up to 20,000 rows and `"nystrom"` above.
    preset : {"default", "fast"}, default="default"
        Amount of search for `"table"`: `"fast"` has a fifth of the default time budget, compares two kernels and averages at
        most two settings.
    tune : {"loo", "none"}, default="loo"
        Method that selects `C` and `gamma` if they are None: leave-one-out, or the defaults `C=1.0` and `gamma="scale"`.
    column_scales : {"learned", "equal"}, default="learned"
        Scales of the columns in the distances of the kernel: `"learned"` also tries scales that are learned by the gradient
        of the leave-one-out loss.
    text : {"auto", "leave out", "hash"}, default="auto"
        Treatment of a column whose strings differ in almost every row: hashed TF-IDF values of the words, or no features.
        `"auto"` uses the values if a ridge regression on the values predicts left-out targets better than the mean.
    dates : {"auto", "day first", "month first", "iso"}, default="auto"
        Order of the day and the month in dates such as `06/12/2023`; `"auto"` derives the order from days above 12 in the
        column. `"iso"` accepts only dates that begin with the year.
    column_types : dict or None, default=None
        Types of columns by name: `"number"`, `"category"`, `"date"`, `"text"` or `"left out"`; types of other columns are
        determined from their values.
    time_budget : float or None, default=None
        Seconds that the fit may take. The budget determines how many rows the search uses, how many settings are averaged
        and how large local partitions are, from the number of operations at a nominal speed. On a slower computer the search
        stops when its time is used up. None is the same work on every computer, so that the model does not depend on the
        speed: about 2 to 3 seconds for 1,000 rows, 15 for 5,000, 45 for 50,000 and 450 for 500,000.
    loss : {"auto", "squared_error", "absolute_error", "huber"}, default="auto"
        Loss function that the fit minimises. `"absolute_error"` predicts medians, and `"huber"` reduces the influence of
        outliers; both are minimised by iteratively reweighted least squares. `"auto"` is `"huber"`, with a warning, if
        targets are extreme, else `"squared_error"`. The logarithm of a skewed positive target may be fitted.
    metric : str or None, default=None
        Criterion of the leave-one-out predictions by which settings are compared; None is the loss. For classes
        `"log_loss"`, `"accuracy"` or `"average_precision"` (mean over the classes), for values `"squared_error"` or
        `"absolute_error"`.
    device : {"cpu", "cuda", "auto"} or None, default=None
        Device of the computation; None uses the device of the data.
    memory_budget : str, int, float or None, default=None
        Upper bound on the memory that the fit allocates: a string such as `"4GB"`, a number of bytes, or a fraction of
        the free memory if at most 1; None is 70 % of the free memory.
    callback : callable or None, default=None
        Function `callback(estimator, record)` called with the partially fitted estimator and a dict of progress values;
        returning True stops the fit. The function is called for every evaluated setting and every solved partition, with the
        keys `"stage"` and `"message"`; after True, the best settings so far are fitted.
    verbose : int, default=0
        If positive, write progress messages to standard error.
    random_state : int, RandomState or None, default=None
        Seed or generator for all random choices of the fit; an int makes the fit reproducible.

    Attributes
    ----------
    columns_ : TableColumns
        Type, preprocessing and missing values of each column, and reasons for excluded columns; printing shows a table.
    feature_importances_ : ndarray of shape (n_features,)
        Mean absolute Shapley value of each column over a sample of training rows (see `explain`), divided by the sum over
        all columns; computed at each access.
    background_ : tuple of ndarray
        Encoded numbers and codes of categories of a sample of training rows, the background rows of `explain`.
    outputs_ : list of estimator
        One fitted estimator for each column of `y`, whose predictions are combined; empty if `y` has one column.
    members_, member_weights_ : list of TableMember, ndarray
        Fitted settings and their weights in the average; empty for a single model.
    model_ : estimator or None
        Fitted single model; None for `"table"`.
    preparation_ : Preparation or None
        Standardisation of the columns before `model_`.
    loss_ : str
        Loss function that the fit minimised.
    loo_predictions_ : ndarray of shape (n,)
        Leave-one-out predictions of the training rows with positive weight, for a table model.
    loo_residuals_ : ndarray of shape (n,)
        Targets of the training rows with positive weight, minus the leave-one-out predictions.
    summary_ : str
        Description of the selected settings.
    reason_ : str
        Why this model was chosen.
    tuned_ : str
        How settings that were None were selected; `"no"` if no setting was selected.
    reductions_ : list of str
        Reductions that the time or memory budget required.
    stopped_at_ : str or None
        Step at which the time budget or the callback stopped the fit; None if no step was left out.
    timings_ : dict
        Seconds of `"tune"` and `"fit"`.

    See Also
    --------
    TableClassifier : The classifier.
    LSSVR : Single kernel regressor with explicit settings.

    References
    ----------
    Cawley and Talbot, "Fast exact leave-one-out cross-validation of sparse least-squares support vector machines", 2004.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import TableRegressor
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> TableRegressor(random_state=0).fit(X, np.sin(X[:, 0])).score(X, np.sin(X[:, 0])) > 0.99
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **_TableEstimator._parameter_constraints,
        "loss": [StrOptions({"auto", "squared_error", "absolute_error", "huber"})],
        "metric": [StrOptions({"squared_error", "absolute_error"}), None],
    }

    loss: str = "auto"
    metric: str | None = None

    def _read_targets(self, y: Any, sample_weight: Any, n: int) -> tuple[np.ndarray, np.ndarray | None]:
        values = column_or_1d(check_outputs(y, n), warn=True).astype(np.float64)
        if not np.abs(values).max() < LARGEST_NUMBER:
            raise ValueError("y has numbers that are too large to compute with: divide them by their unit")
        return values, check_weights(sample_weight, np.empty((n, 1)))

    def _make_loss(self, targets: np.ndarray, weights: np.ndarray | None) -> ValueLoss:
        extreme = np.flatnonzero(extreme_targets(targets))
        self.loss_ = self.loss if self.loss != "auto" else "huber" if extreme.size else "squared_error"
        if extreme.size and self.loss in ("auto", "squared_error"):
            chosen = "the Huber loss is fitted" if self.loss == "auto" else "choose the loss 'huber' or 'absolute_error'"
            warnings.warn(
                f"{extreme.size:,} of {len(targets):,} targets are extreme (for instance {targets[extreme[0]]:g}; the "
                f"median is {np.median(targets):g}) and would dominate the squared error: {chosen}, or correct the values",
                UserWarning,
                stacklevel=3,
            )
        return ValueLoss(targets, self.loss_, weights, self.metric)

    def _calibrate(self, loss: ValueLoss, predictions: np.ndarray) -> None:
        self.target_scales_, self._weights = loss.scales(), loss.weights
        self.loo_predictions_ = predictions
        self.loo_residuals_ = loss.y - predictions.reshape(len(predictions))

    @available_if(lambda self: self.estimator != "svm")
    @_delegated
    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Return intervals that contain the value of a new row with a given probability, from leave-one-out residuals.

        Parameters
        ----------
        X : DataFrame or array
            Rows with the columns of the training table.
        coverage : float, default=0.9
            Probability between 0 and 1 that an interval contains the value of a row of the training distribution.

        Returns
        -------
        ndarray of shape (n, 2)
            Lower and upper ends; infinite if there are too few training rows for the coverage.
        """
        values = self.predict(X)
        length = score_thresholds(np.abs(self.loo_residuals_)[None, :], coverage, self._weights)[0]
        return np.column_stack([values - length, values + length])

    @_delegated
    def predict(self, X: Any) -> np.ndarray:
        """Return predicted values.

        Parameters
        ----------
        X : DataFrame or array
            Rows with the columns of the training table.

        Returns
        -------
        ndarray of shape (n,)
            Predicted values.
        """
        encoded = self._encoded(X)
        total = np.zeros(len(encoded))
        for w, member in zip(self.member_weights_, self.members_, strict=True):
            scores, conversion = member.scores(encoded), (member.factor, member.powers)
            total += w * ValueLoss.from_scores(scores, self.target_scales_, member.log, *conversion)
        return total
