"""Tunable sizes of the image transformers and of the image classifiers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ImageTuning:
    """Sizes with their units and origins."""

    # Bytes of temporaries of one block of images in a transformer: small enough to stay in the last-level cache, large
    # enough that the overhead of NumPy calls is negligible.
    block_bytes: int = 8 * 2**20
    # Bytes of activations that one thread computes at a time, which stay in its second-level cache.
    activation_cache_bytes: int = 2**20
    # Bytes of activations computed at a time on a GPU, where the time of a kernel launch is then negligible.
    activation_device_bytes: int = 2**30
    # Bytes of a batch of images and their features in `PatchDictionary`, in addition to the result.
    batch_bytes: int = 256 * 2**20
    # Rows of patches that are converted to float64 at a time for their covariance.
    covariance_rows: int = 16_384
    # Rows and columns of the pooling grid by default (4 instead of 3: 17.1 instead of 17.8 % errors on CIFAR-10).
    pooling_cells: int = 4
    # The principal directions are computed from this number of rows for each direction, but at least from
    # `min_direction_rows`, whose eigenvectors take about a second.
    rows_per_direction: int = 2
    min_direction_rows: int = 2000
    # Images on which ImageClassifier selects C and mirror: leave-one-out takes less than a second per candidate.
    selection_rows: int = 2000
    min_selection_rows: int = 100
    # Sizes of the small dictionary with which ImageClassifier selects mirror; it is not part of the model.
    pilot_atoms: int = 64
    pilot_patches: int = 100_000
    # Bytes of patches that PatchClassifier classifies at a time.
    patch_block_bytes: int = 256 * 2**20


TUNING = ImageTuning()
