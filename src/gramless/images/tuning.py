"""Tunable sizes of the image transformers and of the image classifiers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ImageTuning:
    """Sizes of the computations with images, with the unit and the origin of each size."""

    # Bytes of the temporary arrays for one block of images in a transformer: small enough for the last-level cache, large
    # enough that the overhead of NumPy calls is negligible.
    block_bytes: int = 8 * 2**20
    # Bytes of activations that one thread computes at a time, so that the activations stay in the second-level cache.
    activation_cache_bytes: int = 2**20
    # Bytes of activations that a GPU computes at a time; the time of starting GPU kernels is negligible for this size.
    activation_device_bytes: int = 2**30
    # Bytes of a batch of images and their features in `PatchDictionary`, in addition to the result.
    batch_bytes: int = 256 * 2**20
    # Number of patches that are converted to float64 at a time to compute the covariance of all patches.
    covariance_rows: int = 16_384
    # Default number of rows and columns of the pooling grid (4 instead of 3: 17.1 instead of 17.8 % errors on CIFAR-10).
    pooling_cells: int = 4
    # The leading directions of features are computed from `rows_per_direction` images for each direction, but from at least
    # `min_direction_rows` images, for which the eigenvectors of the Gram matrix take about a second.
    rows_per_direction: int = 2
    min_direction_rows: int = 2000
    # Largest and smallest number of images on which ImageClassifier selects `C` and `mirror` by leave-one-out, which takes
    # less than a second per candidate.
    selection_rows: int = 2000
    min_selection_rows: int = 100
    # Numbers of atoms and patches of the small dictionary by which ImageClassifier selects `mirror`; the model does not
    # contain this dictionary.
    pilot_atoms: int = 64
    pilot_patches: int = 100_000
    # Bytes of patches that PatchClassifier classifies at a time.
    patch_block_bytes: int = 256 * 2**20


TUNING = ImageTuning()
