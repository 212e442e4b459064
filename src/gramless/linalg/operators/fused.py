"""`K(X, Y) @ V` on a GPU without ever writing `K`: both products and the kernel function in one Triton kernel.

Each program owns a strip of rows of `X`; it walks over the tiles of `Y`, forms `X Y^T` on the tensor cores, applies the
kernel function in registers and accumulates the tile's share of the answer, as flash attention does:

    for each tile of Y:   S = X Y^T,   T = k(S),   out += T V

O(n m d) tensor-core operations; the memory traffic is that of a plain matrix product without its output. `benchmarks/gpu.py`
prints the share of the card's matrix rate that is reached. Precision is named as in torch, with the relative error measured
there on unit vectors (d = 784, polynomial of degree 4):

    "medium"  the data rounded to bfloat16 (exact for integers up to 256, such as pixels)    about 8e-4
    "high"    each number as the sum of two bfloat16, three products                         about 3e-5

The library asks for accurate sums: `T` and `V` then enter the second product as sums of bfloat16 numbers, and what the tiles
contribute is added with compensation. The matrix is a true kernel matrix, of points moved by the rounding above: predict in
the precision of the fit, or coefficients meet points that they were not solved for.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.device import PRECISIONS
from gramless.kernels.base import Kernel, Scaled
from gramless.kernels.dot import Linear, Polynomial
from gramless.kernels.matern import Exponential, Matern32, Matern52
from gramless.kernels.stationary import RBF, Laplacian

if TYPE_CHECKING:
    from torch import Tensor

_POLYNOMIAL, _RBF, _EXPONENTIAL, _MATERN32, _MATERN52 = 0, 1, 2, 3, 4
_COLUMNS_AT_A_TIME = 64
# bfloat16 numbers, of eight bits each, that stand for one entry of V in an accurate product.
_PIECES = {"medium": 2, "high": 3}
_PIECES_OF_FLOAT64 = 5
_STRIP, _TILE, _STEP = 128, 256, 64
# Compute capabilities with the shared memory that whole steps take (147 kB of a multiprocessor); others make half steps.
_LARGE_SHARED_MEMORY = {(8, 0), (9, 0), (10, 0), (10, 3)}
# A strip of half the rows takes this share of the time, since it reads as much of the other operand.
_HALF_STRIP = 0.7


@dataclass(frozen=True)
class Form:
    """A kernel that the fused product knows, as numbers."""

    kind: int
    gamma: float
    coef0: float = 0.0
    degree: int = 1
    scale: float = 1.0

    @property
    def smooth(self) -> bool:
        """Whether rounded squares of small distances do no harm: their roots have half the digits."""
        return self.kind != _EXPONENTIAL

    @property
    def of_distances(self) -> bool:
        """Whether the kernel is a function of distances, so that a shift of all points changes nothing."""
        return self.kind != _POLYNOMIAL


def fused_form(kernel: Kernel) -> Form | None:
    """The numbers of a resolved kernel that the fused product knows; None for any other."""
    if isinstance(kernel, Scaled):
        form = fused_form(kernel.kernel)
        return None if form is None else replace(form, scale=form.scale * kernel.scale)
    if isinstance(kernel, Linear):
        return Form(_POLYNOMIAL, 1.0)
    if isinstance(kernel, Polynomial):
        return Form(_POLYNOMIAL, _number(kernel.gamma), float(kernel.coef0), int(kernel.degree))
    if isinstance(kernel, RBF):
        return Form(_RBF, _number(kernel.gamma))
    if isinstance(kernel, Laplacian) and kernel.norm == "l2":
        return Form(_EXPONENTIAL, _number(kernel.gamma))
    if isinstance(kernel, Exponential):
        return Form(_EXPONENTIAL, _number(kernel.gamma))
    if isinstance(kernel, Matern32):
        return Form(_MATERN32, 3**0.5 * _number(kernel.gamma))
    if isinstance(kernel, Matern52):
        return Form(_MATERN52, 5**0.5 * _number(kernel.gamma))
    return None


def _number(gamma: float | str) -> float:
    """Planning asks before `"scale"` is resolved; the product itself never does."""
    return float("nan") if isinstance(gamma, str) else float(gamma)


@cache
def has_triton() -> bool:
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


def can_fuse(kernel: Kernel, X: Array, precision: str) -> bool:
    """Whether `K(X, .) @ V` runs fused: float32 on CUDA, with Triton, a kernel it knows, below the highest precision."""
    if precision not in PRECISIONS:
        raise ValueError(f"unknown precision {precision!r}; known: {', '.join(map(repr, PRECISIONS))}")
    if precision == "highest" or not xa.device_of(X).startswith("cuda") or str(X.dtype) != "torch.float32":
        return False
    return has_triton() and fused_form(kernel) is not None


class Operand:
    """Points as the fused product reads them, on either side: rounded to bfloat16, padded to whole tiles.

    Parameters
    ----------
    data : bfloat16 tensor of shape (padded n, parts * width)
        The rounded numbers and, with two parts, what that rounding left over, rounded.
    norms : float32 tensor of shape (padded n,)
    n, width : int
        Points, and padded features.
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
                # Products leave out low by low; norms that do too keep the distance from a point to itself at zero.
                norms[rows] -= xa.square_norms(data[rows, width:].float())
        return operand

    def points(self, rows: slice) -> Tensor:
        """The rows as float32 numbers."""
        pieces = self.data[rows].float()
        return pieces if self.parts == 1 else pieces[:, : self.width] + pieces[:, self.width :]

    def take(self, rows: Any) -> Operand:
        """Some of the points, given by a slice or an index array."""
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
    """Rows in a strip: each multiprocessor takes one at a time, and the last round should not leave most of them idle."""
    whole, half = (-(-n // (rows * multiprocessors)) for rows in (_STRIP, _STRIP // 2))
    return _STRIP if whole <= _HALF_STRIP * half else _STRIP // 2


def _step(operand: Operand, capability: tuple[int, int]) -> int:
    """Features in a step, on a device of this compute capability: there are two steps at least.

    Where one step covers all features, Triton (3.6) folds the loop over them into the loop over tiles, whose loads then
    exceed the shared memory or, not made ahead, give wrong numbers.
    """
    folded = operand.data.shape[1] == _STEP
    return _STEP // 2 if folded or capability not in _LARGE_SHARED_MEMORY else _STEP


def _whole_tiles(n: int) -> int:
    return -(-n // _TILE) * _TILE


class FusedProduct:
    """Points prepared for products `K(., points) @ V`.

    Parameters
    ----------
    kernel : Kernel
        Resolved, and one that `fused_form` knows.
    points : CUDA tensor of shape (m, d)
    precision : {"high", "medium"}
    accurate : bool, default=False
        In medium precision (high is always so): round the data only, and sum `K V` better than float32 does. A solver needs
        that: its matrix is then a true kernel matrix, of points moved by a rounding, where rounded sums are not even
        symmetric. So do predictions from many points, whose coefficients of both signs nearly cancel.
    """

    def __init__(self, kernel: Kernel, points: Any, precision: str, *, accurate: bool = False):
        form = fused_form(kernel)
        if form is None:
            raise TypeError(f"no fused product for {kernel!r}")
        self.form, self.precision, self.accurate = form, precision, accurate or precision == "high"
        self._points: Tensor | None = points
        # Distances do not change when everything is shifted, and rounding is smallest around zero.
        self._shift = points.mean(0) if form.kind != _POLYNOMIAL else None
        self.operand = Operand.rounded(points, precision, self._shift)

    def of(self, rows: Any) -> FusedProduct:
        """The product with some of the points, from the same rounded numbers."""
        product = copy(self)
        product._points, product.operand = None, self.operand.take(rows)
        return product

    def _left(self, X: Any) -> Operand:
        if isinstance(X, Operand):
            return X
        return self.operand if X is self._points else Operand.rounded(X, self.precision, self._shift)

    def __call__(self, X: Array | Operand, V: Any) -> Array:
        """`K(X, points) @ V` in float32; a float64 `V` counts with 40 bits where the sums are accurate."""
        import torch

        left = self._left(X)
        strip = _strip(left.n, torch.cuda.get_device_properties(left.data.device).multi_processor_count)
        pieces = 1
        if self.accurate:
            pieces = _PIECES_OF_FLOAT64 if V.dtype == torch.float64 else _PIECES[self.precision]
        out = torch.empty((left.n, V.shape[1]), dtype=torch.float32, device=left.data.device)
        step = _COLUMNS_AT_A_TIME // pieces
        for j in range(0, V.shape[1], step):
            out[:, j : j + step] = self._multiply(left, V[:, j : j + step], pieces, strip)
        return out

    def _multiply(self, left: Operand, V: Any, pieces: int, strip: int) -> Tensor:
        import torch

        from gramless._core.compiled.fused_kernel import launch_product

        n, k = V.shape
        width = max(16, 1 << (pieces * k - 1).bit_length())
        kind = torch.bfloat16 if self.accurate else torch.float32
        padded = torch.zeros((self.operand.data.shape[0], width), dtype=kind, device=V.device)
        for i in range(pieces):
            padded[:n, i * k : (i + 1) * k] = V
            V = V - padded[:n, i * k : (i + 1) * k].to(V.dtype)
        out = torch.empty((left.data.shape[0], width), dtype=torch.float32, device=V.device)
        step = _step(left, torch.cuda.get_device_capability(V.device))
        launch_product(left, self.operand, padded, out, self.form, strip, _TILE, step, self.accurate)
        return out[: left.n, : pieces * k].reshape(left.n, pieces, k).sum(1)

    def block(self, X: Array | Operand) -> Array:
        """`K(X, points)` in float32, entry by entry what the product sums."""
        import torch

        from gramless._core.compiled.fused_kernel import launch_block

        left = self._left(X)
        shape = (left.data.shape[0], self.operand.data.shape[0])
        out = torch.empty(shape, dtype=torch.float32, device=left.data.device)
        step = _step(left, torch.cuda.get_device_capability(out.device))
        # A whole tile passes through shared memory on its way out: half steps, half tiles.
        launch_block(left, self.operand, out, self.form, _STRIP, _TILE * step // _STEP, step)
        return out[: left.n, : self.operand.n]


def prepare(kernel: Kernel, points: Array, precision: str) -> FusedProduct | None:
    """A product fit for a solver where it can run, else None."""
    return FusedProduct(kernel, points, precision, accurate=True) if can_fuse(kernel, points, precision) else None
