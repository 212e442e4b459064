"""The datasets of `load`: file name, source, checksum, and functions that read the published files.

The publisher's checksum of a file is given if there is one. In addition, `digest` covers the names, types, shapes and bytes
of all arrays that were read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gramless.papers.datasets import formats
from gramless.papers.datasets.dataset import Dataset

UCI = "https://archive.ics.uci.edu/static/public"
MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass"
FIGSHARE = "https://ndownloader.figshare.com/files"

DIGITS = tuple("0123456789")
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
# fmt: off
WINE_QUALITY_FEATURES = (
    "fixed acidity", "volatile acidity", "citric acid", "residual sugar", "chlorides", "free sulfur dioxide",
    "total sulfur dioxide", "density", "pH", "sulphates", "alcohol",
)
HOUSING_FEATURES = (
    "longitude", "latitude", "housingMedianAge", "totalRooms", "totalBedrooms", "population", "households", "medianIncome",
)
# fmt: on


@dataclass(frozen=True)
class Entry:
    """One dataset: its `.npz` file, source, published files (address, checksum or None) and digest of the arrays.

    `read` converts the published files to the arrays of the `.npz` file, `decode` converts these to fields of `Dataset`, and
    `fields` are further fields.
    """

    file: str
    source: str
    urls: Sequence[tuple[str, str | None]]
    read: Callable[[Sequence[Path]], dict[str, np.ndarray]]
    digest: str
    decode: Callable[[Mapping[str, np.ndarray]], dict[str, Any]] = formats.decode_split
    fields: Mapping[str, Any] = field(default_factory=dict)
    # Name of the published table, compressed with gzip, which is read if the `.npz` file is missing.
    text_file: str = ""

    def dataset(self, name: str, arrays: Mapping[str, np.ndarray]) -> Dataset:
        """Return the dataset of stored arrays, with integer labels."""
        fields = {**self.decode(arrays), **self.fields}
        if fields.get("task") != "regression":
            fields |= {key: fields[key].astype(np.int64) for key in ("y_train", "y_test")}
        return Dataset(name=name, **fields)


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Return a checksum of the values of arrays, independent of how a file compresses them."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        total.update(f"{name} {array.dtype.str} {array.shape}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


_WHITE_WINE = Entry(
    "wine_quality.npz",
    "UCI Wine Quality, white (Cortez et al. 2009)",
    [(f"{UCI}/186/wine+quality.zip", None)],
    formats.read_wine_quality,
    "cc3fa8175a0c31633c933afe0b3ce8b8510b147bce8c1da8d4ee178490b547bc",
    formats.decode_white_wine,
    {"feature_names": WINE_QUALITY_FEATURES},
)

CATALOGUE: dict[str, Entry] = {
    "mnist": Entry(
        "mnist.npz",
        "LeCun, Cortes & Burges, handwritten digits, the four IDX files",
        [
            (f"{MNIST}/train-images-idx3-ubyte.gz", "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            (f"{MNIST}/train-labels-idx1-ubyte.gz", "md5:d53e105ee54ea40749a09fcbcd1e9432"),
            (f"{MNIST}/t10k-images-idx3-ubyte.gz", "md5:9fb629c4189551a2d022fa330f9573f3"),
            (f"{MNIST}/t10k-labels-idx1-ubyte.gz", "md5:ec29112dd5afa0611ce80d1b7f02629c"),
        ],
        formats.read_mnist,
        "51ea33bae9f51e6756a3648edb97929917a6645bdcda51a9229a2a37956685cd",
        fields={"image_shape": (28, 28), "class_names": DIGITS},
    ),
    "cifar10": Entry(
        "cifar10.npz",
        "Krizhevsky 2009, tiny colour images, binary version",
        [("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530")],
        formats.read_cifar10,
        "75fced81b7e78a380c02688603f57f6371b72a32b414208adb3e296ae5e6a18f",
        formats.decode_cifar10,
        {"image_shape": (32, 32, 3), "class_names": CIFAR10_CLASSES},
    ),
    "usps": Entry(
        "usps.npz",
        "zip.train and zip.test of The Elements of Statistical Learning, in LIBSVM's copy",
        [
            (f"{LIBSVM}/usps.bz2", "md5:ec16c51db3855ca6c91edd34d0e9b197"),
            (f"{LIBSVM}/usps.t.bz2", "md5:8ea070ee2aca1ac39742fdd1ef5ed118"),
        ],
        formats.read_usps,
        "798a87d73be38e4acbe78ddd90196f6c007ef4bbc48afbb8cb552c04faa73c99",
        formats.decode_usps,
        {"image_shape": (16, 16), "class_names": DIGITS},
    ),
    "letter": Entry(
        "letter.npz",
        "UCI Letter Recognition (Slate 1991)",
        [(f"{UCI}/59/letter+recognition.zip", None)],
        formats.read_letter,
        "6f93d7142c96d12bf23ea773677e0103d5cee89ac2bb07703bf1c6e385df36e0",
        fields={"class_names": tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")},
    ),
    "pendigits": Entry(
        "pendigits.npz",
        "UCI Pen-Based Recognition of Handwritten Digits (Alpaydin & Alimoglu 1998)",
        [(f"{UCI}/81/pen+based+recognition+of+handwritten+digits.zip", None)],
        formats.read_pendigits,
        "b862dc8671b8166e47117518e02e6d23048366fc9e81c13aadbe88894dfc6a62",
        fields={"class_names": DIGITS},
    ),
    "spambase": Entry(
        "spambase.npz",
        "UCI Spambase (Hopkins et al. 1999)",
        [(f"{UCI}/94/spambase.zip", None)],
        formats.read_spambase,
        "4e6d480b9c8bdb3e027613331fafa7d5b99d2dfdf4d36d782b45c98c3e288fa9",
        formats.decode_unsplit,
        {"class_names": ("mail", "spam")},
    ),
    "bank": Entry(
        "bank_full.npz",
        "UCI Bank Marketing (Moro, Rita & Cortez 2014)",
        [(f"{UCI}/222/bank+marketing.zip", None)],
        formats.read_bank,
        "4c85240846ef97a62dbeb96dcd24cd3ac60b6deaa45d6f37ecb45b88e81254a3",
        formats.decode_bank,
        {"class_names": ("no", "yes")},
    ),
    "bank_small": Entry(
        "bank_small.npz",
        "UCI Bank Marketing (Moro, Rita & Cortez 2014), the publisher's sample of 4,521 rows",
        [(f"{UCI}/222/bank+marketing.zip", None)],
        formats.read_bank_small,
        "c7de09a9a7b15bbfe36b680488b560033ea140d92e5d1ac5b0e1e35ef281bdaa",
        formats.decode_bank,
        {"class_names": ("no", "yes")},
        text_file="bank.csv.gz",
    ),
    "wine": Entry(
        "wine.npz",
        "UCI Wine (Aeberhard & Forina 1991)",
        [(f"{UCI}/109/wine.zip", None)],
        formats.read_wine,
        "324ff9e482035125bc8107e23e69400b37e6200fd9133c2e4783ea422ffeeff8",
        formats.decode_unsplit,
    ),
    "wine_quality": _WHITE_WINE,
    "wine_quality_red": replace(
        _WHITE_WINE, source="UCI Wine Quality, red (Cortez et al. 2009)", decode=formats.decode_red_wine
    ),
    "covtype": Entry(
        "covtype.npz",
        "UCI Covertype (Blackard 1998)",
        [(f"{FIGSHARE}/5976039", "sha256:614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771")],
        formats.read_covtype,
        "86e400ac819b18fba62e1693b3ca5d54cb3d17a70dc1c59d65b4e2f67ba4690e",
        formats.decode_covtype,
    ),
    "california_housing": Entry(
        "california_housing.npz",
        "StatLib cal_housing (Pace & Barry 1997)",
        [(f"{FIGSHARE}/5976036", "sha256:aaa5c9a6afe2225cc2aed2723682ae403280c4a3695a2ddda4ffb5d8215ea681")],
        formats.read_california_housing,
        "27174bffccbd04a5c32cca0e1c361e102a1f2b95273fdd98d5869511f439f6b0",
        formats.decode_unsplit,
        {"task": "regression", "feature_names": HOUSING_FEATURES},
    ),
}
