"""Image transformers: normalisation, cropping, deskewing, smoothing, HOG, spectra, patches and patch dictionaries.

All of them take grey or colour images as (n, height, width[, channels]) or as flat rows with a `shape`, and work in blocks,
so that temporaries stay small for any n. Except for `PatchDictionary`, they need no fit. Results equal those of scikit-image
where it has the same operation, without one call per image.
"""

from gramless.images.filters import (
    HOG,
    GaussianBlur,
    GaussianWindow,
    MedianFilter,
    Scale01,
    SpectrumFeatures,
    UnitNormalizer,
)
from gramless.images.geometry import Crop, Deskew, mirror_columns, rotation_columns, shift_columns, virtual_examples
from gramless.images.patch_dictionary import PatchDictionary
from gramless.images.patches import Patches

__all__ = [
    "HOG",
    "Crop",
    "Deskew",
    "GaussianBlur",
    "GaussianWindow",
    "MedianFilter",
    "PatchDictionary",
    "Patches",
    "Scale01",
    "SpectrumFeatures",
    "UnitNormalizer",
    "mirror_columns",
    "rotation_columns",
    "shift_columns",
    "virtual_examples",
]
