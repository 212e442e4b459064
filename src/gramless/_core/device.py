"""The parameter `device`, and settings that only CUDA devices have."""

from __future__ import annotations

from dataclasses import dataclass

PRECISIONS = ("highest", "high", "medium")
STORAGES = (None, "float16", "bfloat16")


@dataclass(frozen=True, kw_only=True)
class CUDA:
    """CUDA device with settings, for the parameter `device`; the strings "cuda" and "cuda:1" use the defaults.

    Parameters
    ----------
    index : int, default=0
        Index of the device.
    precision : {"highest", "high", "medium"}, default="highest"
        Precision of products and predictions: float32, or a fused kernel on tensor cores with a relative error of about
        3e-5 ("high") or 8e-4 ("medium"). Predict in the precision of the fit, because the points were rounded to it.
    storage : {None, "float16", "bfloat16"}, default=None
        Storage format of the cached kernel matrix; half precision takes half of the memory and rounds entries to 5e-4
        (float16) or 4e-3 (bfloat16). None stores entries in the dtype of the data.

    See Also
    --------
    LSSVC : Accepts a `CUDA` object as `device`.

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
    """Raise `ValueError` for an unknown precision or storage of a `CUDA` object."""
    for name, known in (("precision", PRECISIONS), ("storage", STORAGES)):
        value = getattr(device, name, known[0])
        if value not in known:
            raise ValueError(f"unknown {name} {value!r}; known: {', '.join(map(repr, known))}")


def precision_of(device: Device) -> str:
    """Return the precision of products: the setting of a `CUDA` object, and `"highest"` for other devices."""
    return device.precision if isinstance(device, CUDA) else "highest"


def storage_of(device: Device) -> str | None:
    """Return the storage format of the cached kernel matrix; None means the dtype of the data."""
    return device.storage if isinstance(device, CUDA) else None
