"""Training files that exceed the memory budget: a sample selects columns and settings, and the model is fitted in batches.

The first pass over the file draws a uniform sample and the held-out rows by a random number for each row, which depends on
the seed and on the position of the row only, so that later passes leave out the same rows. The sample is trained like a
small file, by `NystromLSSVC` or `NystromLSSVR`; `refit_batches` then fits the selected settings to all training rows.
"""

from __future__ import annotations

import bz2
import gzip
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gramless._core.memory import format_bytes, parse_budget
from gramless.cli.errors import InputError, check_readable
from gramless.cli.model import TableModel, typed_frame
from gramless.cli.options import TrainSettings
from gramless.cli.table_files import BATCH_FORMATS, BATCH_ROWS, batches, file_format
from gramless.cli.training_table import MOST_CLASSES, TrainingTable
from gramless.streaming import text

# Rows of the sample, and of the held-out rows: the standard error of a share of 100,000 rows is at most 0.16 %.
_SAMPLE_ROWS, _MOST_HELD_OUT = 50_000, 100_000
# Fewest rows of a sample: ten times the fewest rows of a training file, so that a random sample is large enough.
_FEWEST_SAMPLE_ROWS = 100
# The sample and the held-out rows take at most the memory budget divided by this number.
_SAMPLE_SHARE = 12
# Arrays of the size of the typed table that exist at the peak of a fit in memory: typed, split, encoded, scaled.
_COPIES = 4
# Bytes of text from which the number of lines of a file is estimated.
_PROBED_BYTES = 1 << 20
# A text file is read as a whole if its size times this number is below the budget; compression shrinks text at most twenty
# times.
_SMALL_SHARE = 1000
# Options of `gramless train` that need all rows in memory.
_NEED_ALL_ROWS = ("cv", "groups", "order", "time", "loss")


@dataclass(frozen=True)
class LargeTable:
    """Table that is read in batches; `sample` is a file with some of its rows."""

    settings: TrainSettings
    """Settings of the command for the sample."""
    sample: Path
    n_rows: int
    """Number of training rows."""
    message: str
    held_out_share: float

    def fit(self, model: TableModel, table: TrainingTable, notify: Callable[[str], None]) -> tuple[Any, np.ndarray]:
        """Fit the settings of `model`, which was fitted to the table of the sample, to all training rows.

        Return the held-out rows and their targets.
        """
        estimator, columns = model.estimator, table.columns
        assert columns is not None
        if self.settings.class_weight == "balanced":
            values, counts = np.unique(table.y, return_counts=True)
            balanced = len(table.y) / (len(values) * counts)
            estimator.set_params(class_weight=dict(zip(values.tolist(), balanced.tolist(), strict=True)))

        def training_rows() -> Iterator[tuple[Any, ...]]:
            found: list[tuple[pd.DataFrame, np.ndarray]] = []
            for rows in batches(self.settings.data, model.target, strings=model.string_columns(model.target)):
                notify(f"fitting to {self.n_rows:,} rows: reading row {rows.X.index[0]:,}")
                assert rows.y is not None
                known = ~pd.isna(rows.y)
                X, y = rows.X[known], model.parse_targets(rows.y[known])
                typed = typed_frame(X, columns, str(self.settings.data))
                out = _held_out(self.settings, rows.X.index, self.held_out_share)[known]
                found.append((typed[out], y[out]))
                weights = () if self.settings.weights is None else (X.loc[~out, self.settings.weights].to_numpy(np.float64),)
                if not out.all():
                    yield typed[~out], y[~out], *weights
            held_out[:] = found  # of a complete pass

        held_out: list[tuple[pd.DataFrame, np.ndarray]] = []
        try:
            estimator.refit_batches(training_rows, n_rows=self.n_rows)
        except ValueError as reason:
            raise InputError(str(reason)) from reason
        seconds = model.about["fit_seconds"] + estimator.timings_["fit"]
        model.about.update(why=self.message, reductions=estimator.reductions_, fit_seconds=seconds)
        X_test, y_test = zip(*held_out, strict=True)
        return pd.concat(X_test, ignore_index=True), np.concatenate(y_test)


@contextmanager
def large_table(settings: TrainSettings, notify: Callable[[str], None]) -> Iterator[LargeTable | None]:
    """Yield the sample of a table that does not fit the memory budget, or None if the table fits."""
    try:
        budget = parse_budget(settings.memory_budget)
    except ValueError as reason:
        raise InputError(str(reason)) from reason
    nbytes, n_rows = _memory_of_table(settings, budget)
    if nbytes <= budget:
        yield None
        return
    problem = (
        f"{settings.data.name} with about {n_rows:,.0f} rows takes {format_bytes(nbytes)} in memory, which exceeds the "
        f"budget of {format_bytes(budget)}"
    )
    if settings.target is None:
        raise InputError(f"name the column to predict with --target; {settings.data} is a table")
    if settings.estimator not in ("auto", "nystrom"):
        raise InputError(
            f"{problem}: --estimator {settings.estimator} needs all rows in memory; use nystrom or more --memory"
        )
    defaults = {field.name: field.default for field in fields(TrainSettings)}
    for name in _NEED_ALL_ROWS:
        if getattr(settings, name) != defaults[name]:
            raise InputError(f"{problem}: --{name} needs all rows in memory; leave it out, or use more --memory")
    most = int(budget / _SAMPLE_SHARE / (nbytes / n_rows))
    if most < _FEWEST_SAMPLE_ROWS:
        needed = f"a sample of {_FEWEST_SAMPLE_ROWS} rows takes more than 1/{_SAMPLE_SHARE} of it"
        raise MemoryError(f"{problem}, and {needed}: use more --memory")
    with tempfile.TemporaryDirectory() as folder:
        notify(f"drawing a sample of {settings.data}")
        yield _draw(settings, Path(folder), n_rows, most, problem)


def _memory_of_table(settings: TrainSettings, budget: int) -> tuple[float, float]:
    """Return the estimated bytes of a fit in memory and the number of rows; zeros if it is read at once."""
    path = settings.data
    check_readable(path)
    kind, size = file_format(path), path.stat().st_size
    if kind not in BATCH_FORMATS or (kind == "csv" and size * _SMALL_SHARE < budget):
        return 0.0, 0.0
    first = next(batches(path, None, size=BATCH_ROWS), None)
    if first is None or not len(first):
        return 0.0, 0.0  # the ordinary path reports the empty table
    if kind == "csv":
        with open(path, "rb") as raw:
            decompress: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix.lower())
            lines = (raw if decompress is None else decompress(raw)).read(_PROBED_BYTES).count(b"\n")
            n_rows = size * lines / max(1, raw.tell())
    else:
        import pyarrow.dataset

        n_rows = float(pyarrow.dataset.dataset(str(path), format=kind).count_rows())
    per_row = first.X.memory_usage(index=False, deep=True).sum() / len(first) + _COPIES * 8 * first.X.shape[1]
    return n_rows * per_row, n_rows


def _draw(settings: TrainSettings, folder: Path, n_rows: float, most: int, problem: str) -> LargeTable:
    """Read the table once; write the sample to a file in `folder`, and count the training rows."""
    held_out = 0.0 if settings.test is not None else min(settings.test_size, min(_MOST_HELD_OUT, most) / n_rows)
    share = min(1.0, min(_SAMPLE_ROWS, most) / ((1 - held_out) * n_rows))
    is_text, target = file_format(settings.data) == "csv", str(settings.target)
    # A batch of codes such as "01", "02" looks like numbers: strings are converted when the sample is read.
    strings = list(next(batches(settings.data, None, size=1)).X.columns) if is_text else []
    # Another seed than that of `_held_out`, whose smallest numbers are those of the held-out rows.
    rng, seen, count = np.random.default_rng([settings.seed, 1]), set[Any](), 0
    pieces: list[pd.DataFrame] = []
    for rows in batches(settings.data, target, strings=strings):
        is_training = ~pd.isna(rows.y) & ~_held_out(settings, rows.X.index, held_out)
        drawn = is_training & (rng.random(len(rows)) < share)
        if len(seen) <= MOST_CLASSES:  # the sample needs a row of each class
            firsts = pd.Series(rows.y)[is_training].drop_duplicates()
            new = firsts.index[~firsts.isin(seen)]
            seen.update(firsts)
            drawn[new if len(seen) <= MOST_CLASSES else []] = True
        count += int(is_training.sum())
        pieces.append(rows.X.assign(**{target: rows.y})[drawn])
    sample, path = pd.concat(pieces, ignore_index=True), folder / f"sample{'.csv' if is_text else '.parquet'}"
    if is_text:
        sample.to_csv(path, index=False, sep=text.find_delimiter(settings.data))
    else:
        declared = [column for column, kind in pieces[0].dtypes.items() if isinstance(kind, pd.CategoricalDtype)]
        sample.astype(dict.fromkeys(declared, "category")).to_parquet(path)
    message = (
        f"{problem}: settings are selected on a sample of {len(sample):,} rows, and the model is fitted to {count:,} rows "
        "in batches"
    )
    return LargeTable(replace(settings, estimator="nystrom"), path, count, message, held_out)


def _held_out(settings: TrainSettings, rows: pd.RangeIndex, share: float) -> np.ndarray:
    """Return a mask of held-out rows of a batch; it depends on the seed and on the positions of the rows in the file."""
    return np.random.Generator(np.random.PCG64(settings.seed).advance(rows.start)).random(len(rows)) < share
