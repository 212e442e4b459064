"""Explicit feature maps: features whose inner products approximate a kernel, or kernel values with landmarks."""

from gramless.approximation.features.base import FeatureMap
from gramless.approximation.features.fourier_map import FourierMap
from gramless.approximation.features.landmark_map import LandmarkMap

FEATURE_MAPS: dict[str, type[FeatureMap]] = {"landmarks": LandmarkMap, "fourier": FourierMap}
"""All feature maps by name; the contract tests run for every entry."""
