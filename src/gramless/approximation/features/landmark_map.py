"""Features that are kernel values with `m` landmarks (the Nyström approximation).

    phi(x) = k(G, x),  P = K(G, G)        or, whitened,        phi(x) = L^-1 k(G, x),  P = I,     K(G, G) = L L^T

for landmarks `G` (Williams and Seeger, "Using the Nyström method to speed up kernel machines", 2001). Whitening does
not change the model. Features in float64 are whitened before they are summed over the rows, because `L^-1` would divide the
rounding errors of sums of kernel values by the smallest eigenvalues of `K(G, G)`. In float32 the kernel values have larger
rounding errors than the float64 sums, so the sums are whitened instead, which takes half of the time for each row.

Eigenvalues of `K(G, G)` below the rounding errors of the kernel values contain no information. The jitter added to the
diagonal of `K(G, G)` has the size of these rounding errors (`gramless.linalg.operators.jitter`).

Cost: O(m d) for each row, and O(m^2) more if rows are whitened; O(m^2) memory and O(m^3) time once to factor `K(G, G)`.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.linalg.blas
from sklearn.base import clone

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import blas_threads
from gramless.approximation.features.base import FeatureMap, Features, SampledRows
from gramless.approximation.landmarks import LandmarkRule, as_points, select
from gramless.kernels import Kernel, as_kernel
from gramless.linalg.operators import KernelOperator, evaluate, expand, nbytes_cached
from gramless.linalg.operators.blocks import tile_edge
from gramless.linalg.operators.jitter import jittered_cholesky, rounding_of

# Number of rows per thread in a block of `whiten_rows`: a multiple of the register tiles of all BLAS libraries.
_WHITENED_ROWS = 64
# Number of rows per landmark that are stored for the selection of landmarks if the data can be read only once.
_ROWS_PER_LANDMARK = 4


# Largest kernel value for which the sum of squares over 1e12 rows does not overflow.
_LARGEST_VALUE = float(np.finfo(np.float64).max) ** 0.5 * 1e-6


class Whitening:
    """The Cholesky factor `L` of `K(G, G)`, which converts kernel values to whitened features."""

    def __init__(self, K: Array, dtype: Any):
        self.L, self.jitter = jittered_cholesky(K, rounding_of(K, np.finfo(np.dtype(dtype)).eps))

    def features(self, values: Array) -> Array:
        """Return the features of points in float64, given their kernel values with the landmarks, of shape (n, m)."""
        return xa.solve_triangular(self.L, xa.astype(values, np.float64).T).T

    def coefficients(self, A: Array) -> Array:
        """Return the coefficients `L^-T A` of the landmarks' kernel functions, given the coefficients `A` of features."""
        return xa.solve_triangular(self.L, A, transposed=True)


def whiten_rows(L: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return `L^-1 k` for each row `k` of kernel values, bit-identical for every division of the rows into batches.

    The condition number of `L`, up to 1e8 for nearly dependent landmarks, amplifies rounding errors. BLAS computes
    incomplete blocks by other loops with other rounding errors, so the rows are padded with zeros to complete blocks.
    """
    n, edge = len(values), _WHITENED_ROWS * blas_threads()  # each thread gets complete blocks
    block = np.zeros((-(-n // edge) * edge, values.shape[1]))
    block[:n] = values
    # The transposes of row-major arrays are column-major, so that BLAS solves in place without a copy.
    scipy.linalg.blas.dtrsm(1.0, L.T, block.T, lower=0, trans_a=1, overwrite_b=1)
    return block[:n]


class LandmarkFeatures(Features):
    """Kernel values with landmarks, whitened by `factor` if it is given."""

    def __init__(
        self,
        kernel: Kernel,
        points: Array,
        device: str,
        factor: np.ndarray | None = None,
        jitter: float | None = None,
        targets: np.ndarray | None = None,
    ):
        self.kernel = kernel
        self.points = points
        self.device = device
        self.factor = factor
        self.jitter = jitter
        self.targets = targets
        self._block: np.ndarray | None = None
        self._copies: dict[str, Array] = {}
        self._operator: KernelOperator | None = None

    @property
    def n_features(self) -> int:
        return int(self.points.shape[0])

    def __call__(self, X: Array) -> Array:
        values = self._values(X)
        if self.factor is None:
            return values
        if xa.is_torch(values):
            return xa.solve_triangular(self._on_device_of("factor", values), values.T).T
        return whiten_rows(self.factor, xa.to_numpy(values))

    def _values(self, X: Array) -> Array:
        points = self._on_device_of("points", X)
        if xa.is_torch(X) or xa.is_sparse(X):
            return evaluate(self.kernel, X, points)
        # All batches use the same buffer, because page faults of newly allocated memory take time.
        n = int(X.shape[0])
        if self._block is None or self._block.shape[0] < n or self._block.dtype != X.dtype:
            self._block = np.empty((n, self.n_features), dtype=X.dtype)
        return evaluate(self.kernel, X, points, out=self._block[:n])

    def _on_device_of(self, name: str, X: Array) -> Array:
        """Return the attribute `name` on the device of `X`; the copy is cached."""
        if not xa.is_torch(X):
            return getattr(self, name)
        kept = self._copies.get(name)
        if kept is None or xa.device_of(kept) != xa.device_of(X) or xa.numpy_dtype(kept) != xa.numpy_dtype(X):
            kept = self._copies[name] = xa.to_device(getattr(self, name), xa.device_of(X), xa.numpy_dtype(X))
        return kept

    @property
    def identity_penalty(self) -> bool:
        return self.factor is not None

    def penalty(self) -> Array | None:
        return None if self.identity_penalty else landmark_gram(self.kernel, self.points, self.device)

    def penalty_product(self, A: Array, nbytes: int) -> Array:
        if self.identity_penalty:
            return A
        if self._operator is None or xa.device_of(self._operator.X) != xa.device_of(A):
            points = self._on_device_of("points", A)
            size = nbytes_cached(self.n_features, xa.numpy_dtype(A).itemsize, tile_edge(points))
            self._operator = KernelOperator(points, self.kernel, cache=size <= nbytes)
        return self._operator @ A

    def coefficients(self, A: np.ndarray) -> np.ndarray:
        return A if self.factor is None else xa.to_numpy(xa.solve_triangular(self.factor, A, transposed=True))

    def scores(self, X: Array, coef: Array, precision: str = "highest") -> Array:
        return expand(self.kernel, X, self._on_device_of("points", X), coef, precision)

    def for_prediction(self) -> LandmarkFeatures:
        return LandmarkFeatures(self.kernel, self.points, self.device)

    def state(self) -> dict[str, Any]:
        numbers = {k: v for k, v in self.kernel.get_params().items() if isinstance(v, (Real, str))}
        arrays = {"factor": self.factor, "jitter": self.jitter, "targets": self.targets}
        kept = {key: value for key, value in arrays.items() if value is not None}
        return {"points": self.points, "kernel": numbers, "device": self.device, **kept}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_block": None, "_copies": {}, "_operator": None}


def landmark_gram(kernel: Kernel, points: Array, device: str) -> Array:
    """Return `K(G, G)` in float64; raise `ValueError` if sums of squares of its entries could overflow."""
    double = xa.to_device(points, device, np.float64)
    gram = evaluate(kernel, double, double)
    largest = float(xa.namespace(gram).max(xa.namespace(gram).abs(gram))) if 0 not in gram.shape else 0.0
    if largest > _LARGEST_VALUE:
        raise ValueError(
            f"the values of {kernel!r} reach {largest:.3g}, and their squares overflow: scale the features, for instance "
            "with sklearn.preprocessing.StandardScaler"
        )
    return gram


@dataclass(eq=False, repr=False)
class LandmarkMap(FeatureMap):
    """Settings of landmark features; `size_name` is the name of the parameter `n_landmarks` in error messages."""

    kernel: Any = "rbf"
    n_landmarks: float = 500
    landmarks: Any = "uniform"
    _: KW_ONLY
    whiten: bool = True
    size_name: str = "n_landmarks"

    @property
    def accepts_sparse(self) -> bool:  # type: ignore[override]
        """Whether the kernel accepts CSR rows."""
        return as_kernel(self.kernel).accepts_sparse

    @property
    def keeps_penalty(self) -> bool:  # type: ignore[override]
        """Whether products with `K(G, G)` use a cached matrix: True if the features are not whitened."""
        return not self.whiten

    def _given(self) -> Any:
        """Return the landmarks that the user passed, or None if a rule selects them."""
        return None if isinstance(self.landmarks, (str, LandmarkRule)) else self.landmarks

    def n_features(self, n_rows: int | None) -> int:
        m, given = self.n_landmarks, self._given()
        if given is not None:
            return int(given.shape[0]) if hasattr(given, "shape") else len(given)
        if isinstance(m, Integral):
            return int(m) if n_rows is None else min(int(m), n_rows)
        if n_rows is None:
            raise ValueError(f"{self.size_name} as a fraction needs data of known length; pass an integer for a stream")
        return max(1, round(float(m) * n_rows))

    def rows_needed(self, n_rows: int | None) -> int:
        return 1 if self._given() is not None else self.n_features(n_rows)

    def rows_wanted(self, n_rows: int | None) -> int:
        return _ROWS_PER_LANDMARK * self.n_features(n_rows)

    def named_rows(self, n_rows: int | None) -> np.ndarray | None:
        given = self._given()
        if given is None or np.ndim(given) != 1:
            return None
        rows = np.asarray(given)
        if rows.dtype.kind not in "iu" or n_rows is None or rows.min() < 0 or rows.max() >= n_rows:
            raise ValueError(f"landmarks given as a vector must be row indices below {n_rows}, got {given!r}")
        return rows

    def begin(self, sample: SampledRows, rng: np.random.RandomState) -> LandmarkFeatures:
        unresolved = as_kernel(self.kernel)
        if not unresolved.uses_points:
            raise ValueError("a precomputed kernel has no rows to evaluate: pass the data and a kernel, or use LSSVC")
        X, y = sample.X, sample.y
        kernel = unresolved.resolve(X, sample.weights)
        if sample.named is not None:
            points, targets = sample.named
        else:
            chosen = select(self.landmarks, X, kernel, self.n_features(sample.n_rows), rng, sample.nbytes)
            points, targets = as_points(chosen, X), (y[chosen] if chosen.ndim == 1 and y is not None else None)
        device, dtype = xa.device_of(X), xa.numpy_dtype(points)
        kept = points if xa.is_sparse(points) else xa.to_numpy(points)
        if not self.whiten or dtype != np.float64:
            return LandmarkFeatures(kernel, kept, device, targets=targets)
        whitening = Whitening(landmark_gram(kernel, kept, device), dtype)
        return LandmarkFeatures(kernel, kept, device, xa.to_numpy(whitening.L), whitening.jitter, targets)

    def restore(self, state: dict[str, Any]) -> LandmarkFeatures:
        kernel = clone(as_kernel(self.kernel).resolve(state["points"])).set_params(**state["kernel"])
        jitter = None if "jitter" not in state else float(state["jitter"])
        return LandmarkFeatures(kernel, state["points"], state["device"], state.get("factor"), jitter, state.get("targets"))
