"""The product `K(X, Y) @ V` on a GPU in one Triton kernel that does not store `K`.

Each Triton program computes a strip of rows of the result. For each tile of `Y` it computes `X Y^T` on the tensor cores,
applies the kernel function in registers and adds the product with `V`, as flash attention does:

    for each tile of Y:   S = X Y^T,   T = k(S),   out += T V

O(n m d) tensor-core operations. The two precisions have the names that torch uses. `benchmarks/gpu.py` prints the fraction
of the GPU's peak rate that is reached, and measures the relative errors (unit vectors, d = 784, polynomial of degree 4):

    "medium"  points rounded to bfloat16 (exact for integers up to 256, such as pixels)    about 8e-4
    "high"    points as sums of two bfloat16 numbers: three products instead of one        about 3e-5

`T` and `V` are split into sums of bfloat16 numbers, and the sums of the tiles are added with compensated summation. Only the
points are rounded, so the product is that of the exact kernel matrix of the rounded points. Solvers need this, because
sums with rounding errors are not products with a symmetric matrix. Predictions from many points need accurate sums too,
because terms of both signs nearly cancel, and must round points as the fit did, whose coefficients are for rounded points.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.device import PRECISIONS
from gramless.kernels.base import Kernel, Scaled
from gramless.kernels.dot import Linear, Polynomial
from gramless.kernels.stationary import RBF, Exponential, Laplacian, Matern32, Matern52
from gramless.linalg.tuning import TUNING

if TYPE_CHECKING:
    from torch import Tensor

_POLYNOMIAL, _RBF, _EXPONENTIAL, _MATERN32, _MATERN52 = 0, 1, 2, 3, 4
_KINDS = {RBF: _RBF, Laplacian: _EXPONENTIAL, Exponential: _EXPONENTIAL, Matern32: _MATERN32, Matern52: _MATERN52}
# Number of bfloat16 numbers (8 significant bits each) whose sum is one entry of V.
_PIECES = {"medium": 2, "high": 3}
_PIECES_OF_FLOAT64 = 5
# Rows of X in a strip, rows of Y in a tile, and features in a step of the inner product.
_STRIP, _TILE, _STEP = 128, 256, 64
# Compute capabilities with at least 147 kB of shared memory for each multiprocessor, as steps of `_STEP` features need;
# other devices use steps of half as many features.
_LARGE_SHARED_MEMORY = {(8, 0), (9, 0), (10, 0), (10, 3)}


@dataclass(frozen=True)
class Form:
    """Parameters of a kernel that the fused product supports."""

    kind: int
    gamma: float
    coef0: float = 0.0
    degree: int = 1
    scale: float = 1.0

    @property
    def smooth(self) -> bool:
        """Whether the kernel is smooth at distance zero, so that rounding of squared distances has little effect."""
        return self.kind != _EXPONENTIAL

    @property
    def of_distances(self) -> bool:
        """Whether the kernel is a function of distances, so that a shift of all points does not change kernel values."""
        return self.kind != _POLYNOMIAL


def fused_form(kernel: Kernel) -> Form | None:
    """Return the parameters of a resolved kernel, or None if the fused product does not support the kernel."""
    if isinstance(kernel, Scaled):
        form = fused_form(kernel.kernel)
        return None if form is None else replace(form, scale=form.scale * kernel.scale)
    if isinstance(kernel, Linear):
        return Form(_POLYNOMIAL, 1.0)
    if isinstance(kernel, Polynomial):
        return Form(_POLYNOMIAL, _number(kernel.gamma), float(kernel.coef0), int(kernel.degree))
    for cls, kind in _KINDS.items():
        if isinstance(kernel, cls) and getattr(kernel, "norm", "l2") == "l2":
            return Form(kind, cls.factor * _number(kernel.gamma))
    return None


def _number(gamma: float | str) -> float:
    """Return `gamma` as a float; NaN for a name such as `"scale"`, whose value is not known when a fit is planned."""
    return float("nan") if isinstance(gamma, str) else float(gamma)


@cache
def has_triton() -> bool:
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


def can_fuse(kernel: Kernel, X: Array, precision: str) -> bool:
    """Return True if the fused product supports the kernel, the data (float32 on CUDA) and the precision."""
    if precision not in PRECISIONS:
        raise ValueError(f"unknown precision {precision!r}; known: {', '.join(map(repr, PRECISIONS))}")
    if precision == "highest" or not xa.device_of(X).startswith("cuda") or str(X.dtype) != "torch.float32":
        return False
    return has_triton() and fused_form(kernel) is not None


class Operand:
    """The `n` points of one side of the fused product: rounded to bfloat16 and padded with zeros to full tiles.

    `data` has the rounded points and, if there are two parts, their rounding errors (rounded too). Its shape is (padded n,
    parts * width), where `width` is the padded number of features. `norms` are the squared norms of the points in float32.
    """

    def __init__(self, data: Tensor, norms: Tensor, n: int, width: int):
        self.data, self.norms, self.n, self.width = data, norms, n, width

    @property
    def parts(self) -> int:
        return int(self.data.shape[1]) // self.width

    @classmethod
    def rounded(cls, X: Tensor, precision: str, shift: Tensor | None) -> Operand:
        import torch

        n, d = X.shape
        width, parts = -(-d // _STEP) * _STEP, 2 if precision == "high" else 1
        data = torch.zeros((_whole_tiles(n), parts * width), dtype=torch.bfloat16, device=X.device)
        norms: Any = torch.zeros(data.shape[0], dtype=torch.float32, device=X.device)
        for i in range(0, n, 65536):
            part = X[i : i + 65536]
            part = part if shift is None else part - shift
            span = slice(i, i + part.shape[0])
            for j in range(parts):
                piece = part.to(torch.bfloat16)
                data[span, j * width : j * width + d] = piece
                part = part - piece.float()
        operand = cls(data, norms, n, width)
        for i in range(0, n, 65536):
            rows = slice(i, i + 65536)
            norms[rows] = xa.square_norms(operand.points(rows))
            if parts == 2:
                # Inner products omit the products of two rounding errors. The norms omit these products too, so that the
                # distance of a point to itself is zero.
                norms[rows] -= xa.square_norms(data[rows, width:].float())
        return operand

    def points(self, rows: slice) -> Tensor:
        """Return the rounded rows in float32."""
        pieces = self.data[rows].float()
        return pieces if self.parts == 1 else pieces[:, : self.width] + pieces[:, self.width :]

    def take(self, rows: Any) -> Operand:
        """Return the operand of the points `rows`, a slice or an index array."""
        import torch

        data: Any = xa.take_rows(self.data[: self.n], rows)
        norms: Any = xa.take_rows(self.norms[: self.n], rows)
        n = data.shape[0]
        missing = _whole_tiles(n) - n
        if missing:
            data = torch.nn.functional.pad(data, (0, 0, 0, missing))
            norms = torch.nn.functional.pad(norms, (0, missing))
        return Operand(data, norms, n, self.width)


def _strip(n: int, multiprocessors: int) -> int:
    """Return the rows in a strip: half of `_STRIP` if most multiprocessors would be idle during the last full strips."""
    whole, half = (-(-n // (rows * multiprocessors)) for rows in (_STRIP, _STRIP // 2))
    return _STRIP if whole <= TUNING.half_strip_time * half else _STRIP // 2


def _step(operand: Operand, capability: tuple[int, int]) -> int:
    """Return the number of features in a step of the inner product, which has at least two steps.

    With a single step, Triton 3.6 merges the loop over features into the loop over tiles. The prefetched loads then exceed
    the shared memory, and without prefetching the results are wrong.
    """
    folded = operand.data.shape[1] == _STEP
    return _STEP // 2 if folded or capability not in _LARGE_SHARED_MEMORY else _STEP


def _whole_tiles(n: int) -> int:
    return -(-n // _TILE) * _TILE


class FusedProduct:
    """The product `K(., points) @ V` of a resolved kernel for float32 points on a CUDA device."""

    def __init__(self, kernel: Kernel, points: Any, precision: str):
        form = fused_form(kernel)
        if form is None:
            raise TypeError(f'the fused product does not support {kernel!r}; use precision="highest"')
        self.form, self.precision = form, precision
        # Centring does not change distances, and rounding errors are smaller for numbers near zero.
        self._shift = points.mean(0) if form.of_distances else None
        self.operand = Operand.rounded(points, precision, self._shift)

    def of(self, rows: Any) -> FusedProduct:
        """Return the product with a subset of the points, with the same rounding."""
        return self.with_points(self.operand.take(rows))

    def with_points(self, X: Any) -> FusedProduct:
        """Return the product with the points `X`, rounded in the same way unless they are rounded already."""
        product = copy(self)
        product.operand = self._left(X)
        return product

    def rounded_points(self) -> Array:
        """Return the points that the products use: rounded and, for kernels of distances, centred."""
        return self.operand.points(slice(0, self.operand.n))

    def _left(self, X: Any) -> Operand:
        return X if isinstance(X, Operand) else Operand.rounded(X, self.precision, self._shift)

    def __call__(self, X: Array | Operand, V: Any) -> Array:
        """Return `K(X, points) @ V` in float32; a float64 `V` is rounded to 40 significant bits."""
        import torch

        left = self._left(X)
        strip = _strip(left.n, torch.cuda.get_device_properties(left.data.device).multi_processor_count)
        pieces = _PIECES_OF_FLOAT64 if V.dtype == torch.float64 else _PIECES[self.precision]
        out = torch.empty((left.n, V.shape[1]), dtype=torch.float32, device=left.data.device)
        step = TUNING.fused_columns // pieces
        for j in range(0, V.shape[1], step):
            out[:, j : j + step] = self._multiply(left, V[:, j : j + step], pieces, strip)
        return out

    def _multiply(self, left: Operand, V: Any, pieces: int, strip: int) -> Tensor:
        import torch

        from gramless._core.compiled.fused_kernel import launch_product

        n, k = V.shape
        width = max(16, 1 << (pieces * k - 1).bit_length())
        padded = torch.zeros((self.operand.data.shape[0], width), dtype=torch.bfloat16, device=V.device)
        for i in range(pieces):
            padded[:n, i * k : (i + 1) * k] = V
            V = V - padded[:n, i * k : (i + 1) * k].to(V.dtype)
        out = torch.empty((left.data.shape[0], width), dtype=torch.float32, device=V.device)
        step = _step(left, torch.cuda.get_device_capability(V.device))
        launch_product(left, self.operand, padded, out, self.form, strip, _TILE, step)
        return out[: left.n, : pieces * k].reshape(left.n, pieces, k).sum(1)

    def block(self, X: Array | Operand) -> Array:
        """Return `K(X, points)` in float32; its entries are those that `__call__` computes and multiplies by `V`."""
        import torch

        from gramless._core.compiled.fused_kernel import launch_block

        left = self._left(X)
        shape = (left.data.shape[0], self.operand.data.shape[0])
        out = torch.empty(shape, dtype=torch.float32, device=left.data.device)
        step = _step(left, torch.cuda.get_device_capability(out.device))
        # The output tile is also stored in shared memory, so devices with half steps use half tiles.
        launch_block(left, self.operand, out, self.form, _STRIP, _TILE * step // _STEP, step)
        return out[: left.n, : self.operand.n]


class FusedColumns:
    """The products `C W` and `C^T V` with the columns `C = K(rows, landmarks)`; the points are rounded once for both."""

    def __init__(self, rows: FusedProduct, landmarks: FusedProduct):
        self.rows, self.landmarks = rows, landmarks

    def times(self, W: Array) -> Array:
        """Return `C W` in float32."""
        return self.landmarks(self.rows.operand, W)

    def transposed_times(self, V: Array) -> Array:
        """Return `C^T V`, converted to float64."""
        return xa.astype(self.rows(self.landmarks.operand, V), np.float64)

    def normal_times(self, V: Array, shift: Array, weights: Array) -> Array:
        """Return `C^T diag(weights) (C V - shift)` in float64."""
        return self.transposed_times(weights * (xa.astype(self.times(V), np.float64) - shift))


def prepare(kernel: Kernel, points: Array, precision: str) -> FusedProduct | None:
    """Return the fused product for a solver, or None if the kernel, the points or the precision are not supported."""
    return FusedProduct(kernel, points, precision) if can_fuse(kernel, points, precision) else None
