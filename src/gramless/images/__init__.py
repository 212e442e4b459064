"""Image transformers: normalisation, cropping, deskewing, smoothing, HOG, spectra, patches and patch dictionaries.

Every transformer accepts grey or colour images of shape (n, height, width[, channels]), or flat rows and the parameter
`shape`, and transforms images in blocks, so that temporary arrays stay small for any n. Only `PatchDictionary` is fitted to
images. Operations that scikit-image has too give the same results as scikit-image, without one call per image.
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
