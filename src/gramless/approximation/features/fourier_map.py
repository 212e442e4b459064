"""Random Fourier features: a finite feature map whose inner products have a stationary kernel as their expected value.

    k(x - y) = E cos(w . (x - y)),   phi(x) = [cos(W x), sin(W x)] / sqrt(D)

for D frequencies w drawn from the spectral distribution of k (Rahimi and Recht, "Random features for large-scale kernel
machines", 2007): normal for the RBF kernel; Cauchy, independent in each coordinate, for the Laplacian kernel with the l1
norm; spherical Cauchy for the l2 norm (`Exponential`); multivariate t with 2 nu degrees of freedom for Matern kernels.
The scales of a `ScaledColumns` kernel multiply the frequencies. For the same number of features, a cosine and a sine of one
frequency have a smaller variance than two cosines with random phases.

For spherical distributions, orthogonal frequencies with the same distribution of lengths are also unbiased, with a smaller
variance (Yu et al., "Orthogonal random features", 2016). For many columns the orthogonal matrix is a product of three
Hadamard matrices and diagonal matrices of random signs: O(D) memory, and less time than a dense matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from sklearn.base import clone

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import CPU_TILE, blas_threads, parallel_for, slices
from gramless.approximation.features.base import FeatureMap, Features, SampledRows
from gramless.kernels import RBF, Exponential, Kernel, Laplacian, Matern32, Matern52, ScaledColumns, as_kernel

DRAWS = ("auto", "plain", "orthogonal", "structured")
# Smallest number of columns for which three Hadamard products take less time than one dense product.
_STRUCTURED_FROM = 2048
# Number of sampled rows that determine gamma="scale" if the data can be read only once.
_HEAD_ROWS = 1024


class FourierBasis(Features):
    """Random features whose inner products approximate kernel values; drawn by `draw_fourier_features`."""

    def __init__(
        self, kernel: Kernel, lengths: np.ndarray, directions: np.ndarray | None, signs: np.ndarray | None, n_columns: int
    ):
        self.kernel = kernel
        self.lengths = lengths
        self.directions = directions
        self.signs = signs
        self.n_columns = n_columns

    @property
    def n_features(self) -> int:
        return 2 * len(self.lengths)

    def __call__(self, X: Array) -> Array:
        D = len(self.lengths)
        reference = X.data if xa.is_sparse(X) else X
        out = xa.empty((int(X.shape[0]), 2 * D), reference)
        if xa.is_torch(X):
            self._fill(X, out)
            return out
        tasks = slices(int(X.shape[0]), CPU_TILE)
        parallel_for(tasks, lambda rows: self._fill(X[rows], out[rows]), blas_threads())
        return out

    def frequencies(self) -> np.ndarray:
        """Return the frequencies as a dense matrix: the features are the cosines and sines of `X @ frequencies()`."""
        return np.asarray(self.directions if self.directions is not None else self._structured(np.eye(self.n_columns)))

    def _fill(self, X: Array, out: Array) -> None:
        D = len(self.lengths)
        if self.directions is None:
            phases = self._structured(X)
        else:
            phases = X @ xa.like(self.directions, X.data if xa.is_sparse(X) else X)
        xp = xa.namespace(phases)
        out[:, :D] = xp.cos(phases)
        out[:, D:] = xp.sin(phases)
        out *= D**-0.5

    def _structured(self, X: Array) -> Array:
        assert self.signs is not None
        X = X.toarray() if xa.is_sparse(X) else X
        width = self.signs.shape[2]
        padded = xa.zeros((int(X.shape[0]), width), X)
        padded[:, : self.n_columns] = X
        pieces = []
        for signs in self.signs:
            V = padded
            for diagonal in signs[::-1]:
                V = hadamard_rows(V * xa.like(diagonal, X))
            pieces.append(V)
        phases = xa.namespace(X).concat(pieces, axis=1)[:, : len(self.lengths)]
        return phases * xa.like(self.lengths, X)

    def state(self) -> dict[str, Any]:
        parts = {"lengths": self.lengths, "directions": self.directions, "signs": self.signs, "n_columns": self.n_columns}
        return {key: value for key, value in parts.items() if value is not None} | {
            "gamma": float(self.kernel.get_params()[_gamma_name(self.kernel)])
        }


def hadamard_rows(V: Array) -> Array:
    """Return `V H` for the orthonormal Hadamard matrix `H`, by two small matrix products; the width is a power of two."""
    n, width = int(V.shape[0]), int(V.shape[1])
    left = 1 << ((width.bit_length() - 1) // 2)
    right = width // left
    H_left = xa.like(scipy.linalg.hadamard(left) / left**0.5, V)
    H_right = xa.like(scipy.linalg.hadamard(right) / right**0.5, V)
    return (H_left @ (V.reshape(n, left, right) @ H_right)).reshape(n, width)


def draw_fourier_features(
    kernel: Kernel, n_columns: int, n_features: int, rng: np.random.RandomState, draw: str = "auto"
) -> FourierBasis:
    """Return Fourier features with frequencies drawn from the spectral distribution of `kernel`."""
    if isinstance(kernel, ScaledColumns):
        if draw == "auto" and not _is_city_block(kernel.kernel):
            draw = "orthogonal"  # the structured draw has no column scales
        unscaled = draw_fourier_features(kernel.kernel, n_columns, n_features, rng, draw)
        if unscaled.directions is None:
            raise ValueError("draw='structured' does not support column scales; use draw='orthogonal'")
        directions = unscaled.directions * np.asarray(kernel.scales, dtype=np.float64)[:, None]
        return FourierBasis(kernel, unscaled.lengths, directions, None, n_columns)
    if not isinstance(kernel, (RBF, Laplacian, Exponential, Matern32, Matern52)):
        raise ValueError(
            f"random Fourier features are for RBF and Laplacian kernels and the Matern family, not for {kernel!r}"
        )
    D = max(1, -(-int(n_features) // 2))
    gamma = float(kernel.gamma)
    if _is_city_block(kernel):
        if draw not in ("auto", "plain"):
            raise ValueError(f"draw={draw!r} needs a rotation-invariant kernel: use RBF, norm='l2' or draw='plain'")
        return FourierBasis(kernel, np.ones(D), gamma * rng.standard_cauchy(size=(n_columns, D)), None, n_columns)
    if draw == "auto":
        draw = "structured" if n_columns >= _STRUCTURED_FROM else "orthogonal"
    width = 1 << (n_columns - 1).bit_length() if draw == "structured" else n_columns
    scale = _lengths(kernel, gamma, D, width, rng)
    if draw == "structured":
        signs = rng.choice(np.array([-1.0, 1.0]), size=(-(-D // width), 3, width))
        return FourierBasis(kernel, scale, None, signs, n_columns)
    normal = rng.normal(size=(n_columns, D))
    if draw == "orthogonal":
        for block in slices(D, n_columns):
            normal[:, block] = np.linalg.qr(rng.normal(size=(n_columns, n_columns)))[0][:, : block.stop - block.start]
    directions = normal / np.linalg.norm(normal, axis=0)
    return FourierBasis(kernel, np.ones(D), directions * scale, None, n_columns)


def _is_city_block(kernel: Kernel) -> bool:
    return isinstance(kernel, Laplacian) and kernel.norm == "l1"


def _lengths(kernel: Kernel, gamma: float, D: int, width: int, rng: np.random.RandomState) -> np.ndarray:
    """Draw the norms of `D` frequencies in `width` dimensions: chi for RBF, multivariate t for the other kernels."""
    chi = np.sqrt(rng.chisquare(width, size=D))
    if isinstance(kernel, RBF):
        return np.sqrt(2 * gamma) * chi
    degrees = {Matern32: 3, Matern52: 5}.get(type(kernel), 1)
    if degrees == 1:
        return gamma * chi / np.abs(rng.normal(size=D))
    return gamma * chi / np.sqrt(rng.chisquare(degrees, size=D) / degrees)


def _gamma_name(kernel: Kernel) -> str:
    return "kernel__gamma" if isinstance(kernel, ScaledColumns) else "gamma"


@dataclass(eq=False, repr=False)
class FourierMap(FeatureMap):
    """Settings of random Fourier features of an RBF, Laplacian or Matern kernel."""

    depends_on_rows = False

    kernel: Any = "rbf"
    n_components: int = 500
    draw: str = "auto"

    def n_features(self, n_rows: int | None) -> int:
        return 2 * (-(-self.n_components // 2))

    def rows_wanted(self, n_rows: int | None) -> int:
        return _HEAD_ROWS

    def begin(self, sample: SampledRows, rng: np.random.RandomState) -> FourierBasis:
        kernel = as_kernel(self.kernel).resolve(sample.X, sample.weights)
        return draw_fourier_features(kernel, int(sample.X.shape[1]), self.n_components, rng, self.draw)

    def restore(self, state: dict[str, Any]) -> FourierBasis:
        kernel = clone(as_kernel(self.kernel))
        kernel = kernel.set_params(**{_gamma_name(kernel): state["gamma"]})
        return FourierBasis(kernel, state["lengths"], state.get("directions"), state.get("signs"), int(state["n_columns"]))
