"""`K(X, Y) @ V` on a GPU without ever writing `K`: both products and the kernel function in one Triton kernel.

Each program owns a strip of rows of `X`; it walks over the tiles of `Y`, forms `X Y^T` on the tensor cores, applies the
kernel function in registers and accumulates the tile's share of the answer, as flash attention does:

    for each tile of Y:   S = X Y^T,   T = k(S),   out += T V

O(n m d) tensor-core operations; the memory traffic is that of a plain matrix product without its output. `benchmarks/gpu.py`
prints the share of the card's matrix rate that is reached. Precision is named as in torch, with the relative error measured
there on unit vectors (d = 784, polynomial of degree 4):

    "medium"  the data rounded to bfloat16 (exact for integers up to 256, such as pixels)    about 2e-3
    "high"    each number as the sum of two bfloat16, three products                         about 3e-5
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from gramless import _array as xa
from gramless._array import Array
from gramless.kernels.base import Kernel, Scaled
from gramless.kernels.dot import Linear, Polynomial
from gramless.kernels.stationary import RBF, Laplacian

PRECISIONS = ("highest", "high", "medium")
_POLYNOMIAL, _RBF, _EXPONENTIAL = 0, 1, 2
_COLUMNS_AT_A_TIME = 64
_STRIP, _TILE, _STEP = 128, 256, 32
# Fewer strips than this leave multiprocessors idle: shorter strips then.
_FEW_STRIPS = 264


@dataclass(frozen=True)
class Form:
    """A kernel that the fused product knows, as numbers."""

    kind: int
    gamma: float
    coef0: float = 0.0
    degree: int = 1
    scale: float = 1.0


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


class FusedProduct:
    """Points prepared for products `K(., points) @ V`.

    Parameters
    ----------
    kernel : Kernel
        Resolved, and one that `fused_form` knows.
    points : CUDA tensor of shape (m, d)
    precision : {"high", "medium"}
    accurate : bool, default=False
        Round the data only, and sum `K V` as float32 does. A solver needs that: its matrix is then a true kernel matrix, of
        points moved by a rounding, where rounded sums are not even symmetric. A prediction does not.
    """

    def __init__(self, kernel: Kernel, points: Array, precision: str, *, accurate: bool = False):
        form = fused_form(kernel)
        if form is None:
            raise TypeError(f"no fused product for {kernel!r}")
        self.form, self.precision = form, precision
        self._second = "tf32x3" if accurate or precision == "high" else "tf32"
        self._points = points
        self._left: tuple[Array, Array, Array] | None = None
        # Distances do not change when everything is shifted, and rounding is smallest around zero.
        self._shift = points.mean(0) if form.kind != _POLYNOMIAL else None
        self._right, self._right_norms = self._prepare(points, _TILE, right=True)

    def _prepare(self, X: Array, multiple: int, *, right: bool) -> tuple[Array, Array]:
        """Rows and features padded to whole tiles, in bfloat16 (hi or hi/lo parts side by side), and squared norms."""
        import torch

        n, d = X.shape
        rows, width = -(-n // multiple) * multiple, -(-d // _STEP) * _STEP
        parts = 3 if self.precision == "high" else 1
        out = torch.zeros((rows, parts * width), dtype=torch.bfloat16, device=X.device)
        norms = torch.zeros(rows, dtype=torch.float32, device=X.device)
        for i in range(0, n, 65536):
            part = X[i : i + 65536]
            part = part if self._shift is None else part - self._shift
            high = part.to(torch.bfloat16)
            span = slice(i, i + part.shape[0])
            if parts == 1:
                out[span, :d] = high
                norms[span] = xa.square_norms(high.float())
            else:
                low = (part - high.float()).to(torch.bfloat16)
                order = (high, low, high) if right else (high, high, low)
                for j, piece in enumerate(order):
                    out[span, j * width : j * width + d] = piece
                norms[span] = xa.square_norms(part)
        return out, norms

    def __call__(self, X: Array, V: Array) -> Array:
        """`K(X, points) @ V`; the left operand is kept, since iterations come back with the same `X`."""
        import torch

        strip = _STRIP if X.shape[0] >= _FEW_STRIPS * _STRIP else _STRIP // 2
        if self._left is None or self._left[0] is not X:
            # In one piece both sides are the same numbers; whole tiles are whole strips too.
            shared = X is self._points and self.precision == "medium"
            self._left = (X, *((self._right, self._right_norms) if shared else self._prepare(X, strip, right=False)))
        _, left, left_norms = self._left
        out = torch.empty((X.shape[0], V.shape[1]), dtype=torch.float32, device=X.device)
        for j in range(0, V.shape[1], _COLUMNS_AT_A_TIME):
            columns = V[:, j : j + _COLUMNS_AT_A_TIME]
            product = self._multiply(left, left_norms, columns, strip)
            out[:, j : j + columns.shape[1]] = product[: X.shape[0], : columns.shape[1]]
        return out

    def _multiply(self, left: Array, left_norms: Array, V: Array, strip: int) -> Array:
        import torch

        from gramless.operators.fused_kernel import launch

        width = max(16, 1 << (V.shape[1] - 1).bit_length())
        padded = torch.zeros((self._right.shape[0], width), dtype=torch.float32, device=V.device)
        padded[: V.shape[0], : V.shape[1]] = V
        out = torch.empty((left.shape[0], width), dtype=torch.float32, device=V.device)
        launch(left, self._right, padded, out, left_norms, self._right_norms, self.form, strip, _TILE, _STEP, self._second)
        return out


def prepare(kernel: Kernel, points: Array, precision: str) -> FusedProduct | None:
    """A product fit for a solver where it can run, else None."""
    return FusedProduct(kernel, points, precision, accurate=True) if can_fuse(kernel, points, precision) else None
