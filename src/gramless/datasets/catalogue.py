"""The datasets that `load` knows: the file each one lies in, how it is read, and where the original comes
from.
"""

from __future__ import annotations

from dataclasses import dataclass

from gramless.datasets import layouts
from gramless.datasets.layouts import Layout, pooled_layout, split_layout


@dataclass(frozen=True)
class Entry:
    """One dataset: `file` as it lies in a data folder, `layout` to read it, `original` for people."""

    file: str
    layout: Layout
    original: str


CATALOGUE: dict[str, Entry] = {
    "mnist": Entry(
        "mnist.npz",
        split_layout("mnist", image_shape=(28, 28), class_names=layouts.DIGITS),
        "LeCun, Cortes & Burges, handwritten digits, the four IDX files",
    ),
    "cifar10": Entry("cifar10.npz", layouts.cifar10, "Krizhevsky 2009, tiny colour images, binary version"),
    "usps": Entry("usps.npz", layouts.usps, "zip.train and zip.test of The Elements of Statistical Learning"),
    "letter": Entry(
        "letter.npz",
        split_layout("letter", class_names=layouts.LETTERS),
        "UCI Letter Recognition (Slate 1991)",
    ),
    "pendigits": Entry(
        "pendigits.npz",
        split_layout("pendigits", class_names=layouts.DIGITS),
        "UCI Pen-Based Recognition of Handwritten Digits (Alpaydin & Alimoglu 1998)",
    ),
    "spambase": Entry(
        "spambase.npz",
        pooled_layout("spambase", class_names=("mail", "spam")),
        "UCI Spambase (Hopkins et al. 1999)",
    ),
    "bank": Entry("bank_full.npz", layouts.bank, "UCI Bank Marketing (Moro, Rita & Cortez 2014)"),
    "wine": Entry("wine.npz", pooled_layout("wine"), "UCI Wine (Aeberhard & Forina 1991)"),
    "wine_quality": Entry(
        "wine_quality.npz",
        pooled_layout("wine_quality", x_key="x_white", y_key="y_white", feature_names=layouts.WINE_QUALITY_FEATURES),
        "UCI Wine Quality, white (Cortez et al. 2009)",
    ),
    "wine_quality_red": Entry(
        "wine_quality.npz",
        pooled_layout("wine_quality_red", x_key="x_red", y_key="y_red", feature_names=layouts.WINE_QUALITY_FEATURES),
        "UCI Wine Quality, red (Cortez et al. 2009)",
    ),
    "covtype": Entry("covtype.npz", layouts.covtype, "UCI Covertype (Blackard 1998)"),
    "california_housing": Entry(
        "california_housing.npz",
        pooled_layout("california_housing", task="regression", feature_names=layouts.HOUSING_FEATURES),
        "StatLib cal_housing (Pace & Barry 1997)",
    ),
}
