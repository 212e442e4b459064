"""Rows of dask collections as pieces on the workers, with sizes and classes on the client; a piece is a checked partition.

Arrays are cached if they fit into half of the workers' memory; other pieces are read in each pass, or cached by `Rows.keep`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.distributed import Client, Future
from sklearn.utils.multiclass import check_classification_targets

from gramless._core.dask_dispatch import is_dask_collection
from gramless._core.validation import missing_mask, working_dtype
from gramless.distributed.cluster import cluster_memory


@dataclass
class Piece:
    """Rows of one partition, on a worker."""

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None

    def __sizeof__(self) -> int:
        # Dask uses the size in bytes to assign objects to workers and to move objects to disk.
        return int(self.X.nbytes + self.y.nbytes + (0 if self.weights is None else self.weights.nbytes))


@dataclass
class Summary:
    """Sizes and labels of one piece, returned to the client."""

    n: int
    d: int
    dtype: np.dtype
    labels: Any
    mass: Any
    """Total weight of each label."""
    target_shape: tuple[int, ...]


@dataclass
class Rows:
    """All pieces of the training rows, with their sizes and classes."""

    client: Client
    pieces: list[Any]
    """Futures if the pieces are cached, else delayed objects."""
    counts: list[int]
    d: int
    dtype: np.dtype
    target_shape: tuple[int, ...]
    classes: Any
    """Sorted labels, or None for regression."""
    mass: Any
    """Total weight of each class."""
    example: Any
    """Empty table with the feature names, or an empty array if a name is not a string."""

    @property
    def n(self) -> int:
        return sum(self.counts)

    @property
    def offsets(self) -> list[int]:
        """Index of the first row of each piece."""
        return [0, *np.cumsum(self.counts)[:-1].tolist()]

    def keep(self) -> None:
        """Cache the pieces on the workers for several passes; a worker writes pieces that exceed its memory to disk."""
        if not isinstance(self.pieces[0], Future):
            self.pieces = self.client.compute(self.pieces)

    def map(self, work: Callable[..., Any], *shared: Any, each: Sequence[tuple[Any, ...]] | None = None) -> list[Any]:
        """Return futures of `work(piece, *own, *shared)` for all pieces; `each` has the arguments `own` for each piece."""
        own = [()] * len(self.pieces) if each is None else each
        lazy = dask.delayed(work, pure=False)
        return self.client.compute([lazy(p, *args, *shared) for p, args in zip(self.pieces, own, strict=True)])

    def take(self, rows: np.ndarray) -> Any:
        """Return a future of one `Piece` with the rows of the given sorted indices."""
        bounds = np.searchsorted(rows, [*self.offsets, self.n])
        wanted = [rows[bounds[i] : bounds[i + 1]] - start for i, start in enumerate(self.offsets)]
        parts = self.map(take_rows, each=[(idx,) for idx in wanted])
        return self.client.submit(join, parts, pure=False)


def class_factors(class_weight: Any, rows: Rows) -> np.ndarray | None:
    """Return one weight per class, as specified by `class_weight`, or None if `class_weight` is None."""
    if class_weight is None:
        return None
    if isinstance(class_weight, dict):
        return np.array([float(class_weight.get(label, 1.0)) for label in rows.classes.tolist()])
    return rows.mass.sum() / (np.count_nonzero(rows.mass) * np.where(rows.mass > 0, rows.mass, 1.0))  # "balanced"


def describe(client: Client, X: Any, y: Any, sample_weight: Any, *, dtype: Any, classification: bool) -> Rows:
    """Read and check the collections on the workers, and return the rows with their sizes and classes."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    is_table = hasattr(X, "columns")
    parts, lengths = row_parts(X)
    y_parts = _aligned("y", y, lengths)
    w_parts = [None] * len(parts) if sample_weight is None else _aligned("sample_weight", sample_weight, lengths)
    load = dask.delayed(load_piece, pure=False)
    names = list(X.columns) if is_table else X.shape[1]
    pieces = [load(*part, dtype, names) for part in zip(parts, y_parts, w_parts, strict=True)]
    # Dataframes are not cached here, because their size is unknown before they have been read once.
    if not is_table and float(X.nbytes) <= cluster_memory(client) / 2:
        pieces = client.compute(pieces)
    summary = dask.delayed(summarise, pure=False)
    found = client.gather(client.compute([summary(piece, classification) for piece in pieces]))
    pieces, found = ([value for value, s in zip(values, found, strict=True) if s.n] for values in (pieces, found))
    if not found:
        raise ValueError("the collection has no rows")
    for attribute, text in (("d", "columns"), ("target_shape", "outputs"), ("dtype", "dtype")):
        values = {getattr(s, attribute) for s in found}
        if len(values) > 1:
            raise ValueError(f"the partitions differ in their {text}: {sorted(map(str, values))}")
    classes, mass = _all_classes(found) if classification else (None, None)
    named = is_table and all(isinstance(name, str) for name in X.columns)
    example = X._meta if named else np.empty((0, X.shape[1]))
    first = found[0]
    return Rows(client, pieces, [s.n for s in found], first.d, first.dtype, first.target_shape, classes, mass, example)


def _all_classes(summaries: list[Summary]) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted labels of all pieces and the total weight of each label."""
    classes = np.unique(np.concatenate([s.labels for s in summaries]))
    mass = np.zeros(len(classes))
    for s in summaries:
        mass[np.searchsorted(classes, s.labels)] += s.mass
    n_weighted = np.count_nonzero(mass)
    if n_weighted < 2:
        raise ValueError(f"The number of classes has to be greater than one; got {n_weighted} class with positive weight")
    return classes, mass


def row_parts(X: Any) -> tuple[list[Any], Sequence[float]]:
    """Return the partitions as delayed objects, each with all columns, and their numbers of rows (NaN if unknown)."""
    if hasattr(X, "columns"):
        return list(X.to_delayed()), [np.nan] * X.npartitions
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got {X.ndim}D collection instead")
    with_all_columns = X.rechunk({1: X.shape[1]})
    return with_all_columns.to_delayed().ravel().tolist(), with_all_columns.chunks[0]


def lazy_array(blocks: Iterable[Any], lengths: Sequence[float], shape: tuple[int, ...], dtype: Any) -> da.Array:
    """Return delayed blocks as one dask array, given the number of rows of each block and the shape of a row."""
    parts = [
        da.from_delayed(block, shape=(length, *shape), dtype=dtype) for block, length in zip(blocks, lengths, strict=True)
    ]
    return da.concatenate(parts, axis=0, allow_unknown_chunksizes=True)


def _aligned(name: str, values: Any, lengths: Sequence[float]) -> list[Any]:
    """Return delayed partitions of targets or weights that match the partitions of the rows."""
    known = not np.isnan(lengths).any()
    if not is_dask_collection(values):
        if not known:
            raise ValueError(f"{name} must be a dask collection if the lengths of the partitions of X are unknown")
        values = da.from_array(np.asarray(values), chunks=-1)
    if known and hasattr(values, "chunks") and not np.isnan(values.chunks[0]).any():
        if values.shape[0] != sum(lengths):
            raise ValueError(f"X has {sum(lengths)} rows and {name} has {values.shape[0]}")
        values = values.rechunk({0: lengths, **({1: -1} if values.ndim == 2 else {})})
    parts = np.ravel(values.to_delayed()).tolist()
    if len(parts) != len(lengths):
        raise ValueError(f"X has {len(lengths)} partitions and {name} has {len(parts)}: repartition them alike")
    return parts


def load_piece(X: Any, y: Any, weights: Any, dtype: Any, columns: int | list[Any]) -> Piece:
    """Return a partition as checked arrays in the working precision; `columns` is the required number or list of columns."""
    _check_columns(X, columns)
    X = np.asarray(X)
    X = np.ascontiguousarray(X, dtype=working_dtype(X, dtype))
    y = np.asarray(y)
    weights = None if weights is None else np.asarray(weights, dtype=np.float64)
    for name, values in (("y", y), ("sample_weight", weights)):
        if values is not None and len(values) != len(X):
            raise ValueError(f"a partition of X has {len(X)} rows and that of {name} has {len(values)}")
    if not np.isfinite(X).all():
        raise ValueError("Input X contains NaN or infinity")
    if missing_mask(y).any():
        raise ValueError("Input y contains NaN, infinity or missing values")
    if weights is not None and not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ValueError("sample_weight must be finite and at least 0")
    return Piece(X, y, weights)


def _check_columns(X: Any, columns: int | list[Any]) -> None:
    """Raise `ValueError` if a partition does not have the columns that the metadata of the collection declares."""
    if isinstance(columns, list):
        if list(X.columns) != columns:
            raise ValueError(f"a partition of X has the columns {list(X.columns)}, but X says that it has {columns}")
    elif np.ndim(X) != 2:
        raise ValueError(f"a block of X has {np.ndim(X)} dimensions; expected 2")
    elif X.shape[1] != columns:
        raise ValueError(f"a block of X has {X.shape[1]} columns, but X says that it has {columns}")


def summarise(piece: Piece, classification: bool) -> Summary:
    """Return the sizes and labels of a piece."""
    labels = mass = None
    if classification and len(piece.y):
        y = piece.y.reshape(len(piece.y)) if piece.y.ndim == 2 and piece.y.shape[1] == 1 else piece.y
        if y.ndim != 1:
            raise ValueError(f"y should be a 1d array, got an array of shape {piece.y.shape} instead.")
        check_classification_targets(y)
        labels, codes = np.unique(y, return_inverse=True)
        mass = np.bincount(codes, weights=piece.weights, minlength=len(labels)).astype(np.float64)
    n, d = piece.X.shape
    return Summary(n, d, piece.X.dtype, labels, mass, piece.y.shape[1:])


def take_rows(piece: Piece, idx: np.ndarray) -> Piece:
    """Return the rows of a piece at the given indices."""
    return Piece(piece.X[idx], piece.y[idx], None if piece.weights is None else piece.weights[idx])


def join(pieces: list[Piece]) -> Piece:
    """Return the concatenation of pieces."""
    weights = None
    if pieces[0].weights is not None:
        weights = np.concatenate([p.weights for p in pieces if p.weights is not None])
    return Piece(np.concatenate([p.X for p in pieces]), np.concatenate([p.y for p in pieces]), weights)
