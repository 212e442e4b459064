"""Where to compute, with the settings that only a graphics card has."""

from __future__ import annotations

from dataclasses import dataclass

PRECISIONS = ("highest", "high", "medium")
STORAGES = (None, "float16", "bfloat16")


@dataclass(frozen=True, kw_only=True)
class CUDA:
    """A CUDA device and how precisely it computes, for `device=`; the strings "cuda" and "cuda:1" have the defaults.

    Parameters
    ----------
    index : int, default=0
        Which device.
    precision : {"highest", "high", "medium"}, default="highest"
        Of streamed products and predictions: float32, or a fused kernel on the tensor cores with a relative error of about
        3e-5 or 8e-4. Predict in the precision of the fit: the coefficients belong to points rounded so.
    storage : {None, "float16", "bfloat16"}, default=None
        Half-precision cache of the kernel matrix: half the memory, entries rounded to 5e-4 or 4e-3.

    See Also
    --------
    LSSVC : Takes one as `device`.

    Examples
    --------
    >>> from gramless import CUDA, LSSVC
    >>> LSSVC(device=CUDA(precision="medium")).device
    CUDA(index=0, precision='medium', storage=None)
    """

    index: int = 0
    precision: str = "highest"
    storage: str | None = None

    def __str__(self) -> str:
        return f"cuda:{self.index}"


Device = str | CUDA | None


def check_device(device: Device) -> None:
    """Settings of a device that are none of the known ones."""
    for name, known in (("precision", PRECISIONS), ("storage", STORAGES)):
        value = getattr(device, name, known[0])
        if value not in known:
            raise ValueError(f"unknown {name} {value!r}; known: {', '.join(map(repr, known))}")


def precision_of(device: Device) -> str:
    """The precision of streamed products: that of a `CUDA` device, else the highest."""
    return device.precision if isinstance(device, CUDA) else "highest"


def storage_of(device: Device) -> str | None:
    """The format of a cached kernel matrix, None for the data's own."""
    return device.storage if isinstance(device, CUDA) else None
