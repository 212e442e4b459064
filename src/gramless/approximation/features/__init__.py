"""Explicit feature maps: from rows to features whose inner products are a kernel, or its values at some points."""

from gramless.approximation.features.base import FeatureMap, Features
from gramless.approximation.features.fourier_map import FourierFeatures, FourierMap
from gramless.approximation.features.landmark_map import LandmarkFeatures, LandmarkMap

FEATURE_MAPS: dict[str, type[FeatureMap]] = {"landmarks": LandmarkMap, "fourier": FourierMap}
"""Every feature map; the contract tests run over it."""

__all__ = [
    "FEATURE_MAPS",
    "FeatureMap",
    "Features",
    "FourierFeatures",
    "FourierMap",
    "LandmarkFeatures",
    "LandmarkMap",
]
