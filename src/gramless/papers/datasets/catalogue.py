"""The datasets that `load` knows: the file each one lies in, how it is read, where the original comes from.

Checksums of files are those their publishers give. Where there are none, and everywhere else too, the
values that were read are checked: `digest` covers names, types, shapes and bytes of all arrays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gramless.papers.datasets import layouts, originals
from gramless.papers.datasets.layouts import Layout, pooled_layout, split_layout

UCI = "https://archive.ics.uci.edu/static/public"
MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass"


@dataclass(frozen=True)
class Original:
    """Public files and how to read them; `files` are (address, published checksum or None)."""

    files: Sequence[tuple[str, str | None]]
    read: Callable[[Sequence[Path]], dict[str, np.ndarray]]
    digest: str


@dataclass(frozen=True)
class Entry:
    """One dataset: `file` as it lies in a data folder, `layout` to read it, `about` for people."""

    file: str
    layout: Layout
    about: str
    original: Original


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """A checksum of values: it does not depend on how they were packed."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        total.update(f"{name} {array.dtype.str} {array.shape}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


WINE_QUALITY = Original(
    [(f"{UCI}/186/wine+quality.zip", None)],
    originals.wine_quality,
    "cc3fa8175a0c31633c933afe0b3ce8b8510b147bce8c1da8d4ee178490b547bc",
)

CATALOGUE: dict[str, Entry] = {
    "mnist": Entry(
        "mnist.npz",
        split_layout("mnist", image_shape=(28, 28), class_names=layouts.DIGITS),
        "LeCun, Cortes & Burges, handwritten digits, the four IDX files",
        Original(
            [
                (f"{MNIST}/train-images-idx3-ubyte.gz", "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873"),
                (f"{MNIST}/train-labels-idx1-ubyte.gz", "md5:d53e105ee54ea40749a09fcbcd1e9432"),
                (f"{MNIST}/t10k-images-idx3-ubyte.gz", "md5:9fb629c4189551a2d022fa330f9573f3"),
                (f"{MNIST}/t10k-labels-idx1-ubyte.gz", "md5:ec29112dd5afa0611ce80d1b7f02629c"),
            ],
            originals.mnist,
            "51ea33bae9f51e6756a3648edb97929917a6645bdcda51a9229a2a37956685cd",
        ),
    ),
    "cifar10": Entry(
        "cifar10.npz",
        layouts.cifar10,
        "Krizhevsky 2009, tiny colour images, binary version",
        Original(
            [
                (
                    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                    "md5:c32a1d4ab5d03f1284b67883e8d87530",
                )
            ],
            originals.cifar10,
            "75fced81b7e78a380c02688603f57f6371b72a32b414208adb3e296ae5e6a18f",
        ),
    ),
    "usps": Entry(
        "usps.npz",
        layouts.usps,
        "zip.train and zip.test of The Elements of Statistical Learning, in LIBSVM's copy",
        Original(
            [
                (f"{LIBSVM}/usps.bz2", "md5:ec16c51db3855ca6c91edd34d0e9b197"),
                (f"{LIBSVM}/usps.t.bz2", "md5:8ea070ee2aca1ac39742fdd1ef5ed118"),
            ],
            originals.usps,
            "798a87d73be38e4acbe78ddd90196f6c007ef4bbc48afbb8cb552c04faa73c99",
        ),
    ),
    "letter": Entry(
        "letter.npz",
        split_layout("letter", class_names=layouts.LETTERS),
        "UCI Letter Recognition (Slate 1991)",
        Original(
            [(f"{UCI}/59/letter+recognition.zip", None)],
            originals.letter,
            "6f93d7142c96d12bf23ea773677e0103d5cee89ac2bb07703bf1c6e385df36e0",
        ),
    ),
    "pendigits": Entry(
        "pendigits.npz",
        split_layout("pendigits", class_names=layouts.DIGITS),
        "UCI Pen-Based Recognition of Handwritten Digits (Alpaydin & Alimoglu 1998)",
        Original(
            [(f"{UCI}/81/pen+based+recognition+of+handwritten+digits.zip", None)],
            originals.pendigits,
            "b862dc8671b8166e47117518e02e6d23048366fc9e81c13aadbe88894dfc6a62",
        ),
    ),
    "spambase": Entry(
        "spambase.npz",
        pooled_layout("spambase", class_names=("mail", "spam")),
        "UCI Spambase (Hopkins et al. 1999)",
        Original(
            [(f"{UCI}/94/spambase.zip", None)],
            originals.spambase,
            "4e6d480b9c8bdb3e027613331fafa7d5b99d2dfdf4d36d782b45c98c3e288fa9",
        ),
    ),
    "bank": Entry(
        "bank_full.npz",
        layouts.bank,
        "UCI Bank Marketing (Moro, Rita & Cortez 2014)",
        Original(
            [(f"{UCI}/222/bank+marketing.zip", None)],
            originals.bank,
            "4c85240846ef97a62dbeb96dcd24cd3ac60b6deaa45d6f37ecb45b88e81254a3",
        ),
    ),
    "wine": Entry(
        "wine.npz",
        pooled_layout("wine"),
        "UCI Wine (Aeberhard & Forina 1991)",
        Original(
            [(f"{UCI}/109/wine.zip", None)],
            originals.wine,
            "324ff9e482035125bc8107e23e69400b37e6200fd9133c2e4783ea422ffeeff8",
        ),
    ),
    "wine_quality": Entry(
        "wine_quality.npz",
        pooled_layout("wine_quality", x_key="x_white", y_key="y_white", feature_names=layouts.WINE_QUALITY_FEATURES),
        "UCI Wine Quality, white (Cortez et al. 2009)",
        WINE_QUALITY,
    ),
    "wine_quality_red": Entry(
        "wine_quality.npz",
        pooled_layout("wine_quality_red", x_key="x_red", y_key="y_red", feature_names=layouts.WINE_QUALITY_FEATURES),
        "UCI Wine Quality, red (Cortez et al. 2009)",
        WINE_QUALITY,
    ),
    "covtype": Entry(
        "covtype.npz",
        layouts.covtype,
        "UCI Covertype (Blackard 1998)",
        Original(
            [
                (
                    "https://ndownloader.figshare.com/files/5976039",
                    "sha256:614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771",
                )
            ],
            originals.covtype,
            "86e400ac819b18fba62e1693b3ca5d54cb3d17a70dc1c59d65b4e2f67ba4690e",
        ),
    ),
    "california_housing": Entry(
        "california_housing.npz",
        pooled_layout("california_housing", task="regression", feature_names=layouts.HOUSING_FEATURES),
        "StatLib cal_housing (Pace & Barry 1997)",
        Original(
            [
                (
                    "https://ndownloader.figshare.com/files/5976036",
                    "sha256:aaa5c9a6afe2225cc2aed2723682ae403280c4a3695a2ddda4ffb5d8215ea681",
                )
            ],
            originals.california_housing,
            "27174bffccbd04a5c32cca0e1c361e102a1f2b95273fdd98d5869511f439f6b0",
        ),
    ),
}
