"""The public originals in their own formats (IDX, binary records, svmlight, csv, zip), read without pickle.

Each reader takes the downloaded files in the order in which they are declared and returns the arrays of the
dataset's `.npz` layout, so that a dataset is read one way only, wherever it came from.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

Arrays = dict[str, np.ndarray]


def mnist(files: Sequence[Path]) -> Arrays:
    """Four IDX files: training images and labels, test images and labels."""
    names = ("x_train", "y_train", "x_test", "y_test")
    return {name: idx(gzip.decompress(path.read_bytes())) for name, path in zip(names, files, strict=True)}


def idx(content: bytes) -> np.ndarray:
    """An IDX file of bytes: magic number 0, 0, type 8, count of dimensions; big-endian sizes; then the
    values.
    """
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise ValueError("not an IDX file of unsigned bytes")
    dimensions = content[3]
    start = 4 + 4 * dimensions
    shape = tuple(np.frombuffer(content[4:start], dtype=">u4").astype(int))
    values = np.frombuffer(content[start:], dtype=np.uint8)
    if values.size != int(np.prod(shape)):
        raise ValueError(f"an IDX file of shape {shape} holds {values.size} values")
    return values.reshape(shape)


def cifar10(files: Sequence[Path]) -> Arrays:
    """The binary version: records of one label and 3 x 32 x 32 bytes, planes R, G, B; five batches and a
    test batch.
    """
    batches = {}
    with tarfile.open(files[0], "r:gz") as archive:
        for member in archive:
            name = Path(member.name).name
            if member.isfile() and name.endswith(".bin"):
                content = archive.extractfile(member).read()  # type: ignore[union-attr]
                batches[name] = np.frombuffer(content, dtype=np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    train = np.concatenate([batches[f"data_batch_{k}.bin"] for k in range(1, 6)])
    test = batches["test_batch.bin"]
    return {
        "d_train": difference_code(train[:, 1:]),
        "y_train": train[:, 0].copy(),
        "d_test": difference_code(test[:, 1:]),
        "y_test": test[:, 0].copy(),
    }


def difference_code(records: np.ndarray) -> np.ndarray:
    """Planes G, R - G, B - G, differenced across and down each image, modulo 256: the same values, far
    smaller.
    """
    red, green, blue = np.moveaxis(records.reshape(-1, 3, 32, 32), 1, 0)
    planes = np.stack([green, red - green, blue - green])
    planes[:, :, :, 1:] -= planes[:, :, :, :-1].copy()
    planes[:, :, 1:, :] -= planes[:, :, :-1, :].copy()
    return planes


def usps(files: Sequence[Path]) -> Arrays:
    """Two svmlight files, labels 1 to 10 for the digits 0 to 9, values with three decimals in [-1, 1]."""
    from sklearn.datasets import load_svmlight_file  # takes a tenth of a second, which every `gramless train` would pay

    arrays: Arrays = {}
    for half, path in zip(("train", "test"), files, strict=True):
        x, y = load_svmlight_file(io.BytesIO(bz2.decompress(path.read_bytes())), n_features=256, zero_based=False)
        arrays[f"x_{half}"] = np.rint(1000 * x.toarray()).astype(np.int16).reshape(-1, 16, 16)
        arrays[f"y_{half}"] = (y - 1).astype(np.uint8)
    return arrays


def letter(files: Sequence[Path]) -> Arrays:
    """A letter and sixteen integers per line; the first 16,000 lines are for training."""
    rows = [line.split(",") for line in member(files[0], "letter-recognition.data").split()]
    y = np.array([ord(row[0]) - ord("A") for row in rows], dtype=np.uint8)
    x = np.array([row[1:] for row in rows], dtype=np.uint8)
    return {"x_train": x[:16_000], "y_train": y[:16_000], "x_test": x[16_000:], "y_test": y[16_000:]}


def pendigits(files: Sequence[Path]) -> Arrays:
    """Sixteen coordinates and the digit per line, one file for each half."""
    train = _table(member(files[0], "pendigits.tra")).astype(np.uint8)
    test = _table(member(files[0], "pendigits.tes")).astype(np.uint8)
    return {
        "x_train": train[:, :-1],
        "y_train": train[:, -1],
        "x_test": test[:, :-1],
        "y_test": test[:, -1],
    }


def spambase(files: Sequence[Path]) -> Arrays:
    """Fifty-seven numbers and the label per line."""
    table = _table(member(files[0], "spambase.data"))
    return {"x": table[:, :-1], "y": table[:, -1].astype(np.uint8)}


def wine(files: Sequence[Path]) -> Arrays:
    """The class, 1 to 3, and thirteen numbers per line."""
    table = _table(member(files[0], "wine.data"))
    return {"x": table[:, 1:], "y": (table[:, 0] - 1).astype(np.uint8)}


def wine_quality(files: Sequence[Path]) -> Arrays:
    """Two tables with a heading, columns parted by semicolons, the quality last."""
    arrays: Arrays = {}
    for colour in ("red", "white"):
        table = _table(member(files[0], f"winequality-{colour}.csv"), delimiter=";", skip=1)
        arrays[f"x_{colour}"] = table[:, :-1]
        arrays[f"y_{colour}"] = table[:, -1].astype(np.uint8)
    return arrays


def bank(files: Sequence[Path]) -> Arrays:
    """A table with text columns, in an archive within the archive; levels are coded in alphabetical order."""
    with zipfile.ZipFile(files[0]) as outer:
        inner = io.BytesIO(outer.read("bank.zip"))
    heading, *rows = csv.reader(io.StringIO(member(inner, "bank-full.csv")), delimiter=";")
    columns = dict(zip(heading, zip(*rows, strict=True), strict=True))
    answer = columns.pop("y")
    numbers = {name: values for name, values in columns.items() if values[0].lstrip("-").isdigit()}
    words = {name: values for name, values in columns.items() if name not in numbers}
    levels = {name: sorted(set(values)) for name, values in words.items()}
    codes = [np.searchsorted(levels[name], values) for name, values in words.items()]
    return {
        "x_num": np.array(list(numbers.values()), dtype=np.int32).T,
        "x_cat": np.array(codes, dtype=np.uint8).T,
        "y": np.array([word == "yes" for word in answer], dtype=np.uint8),
        "num_names": np.array(list(numbers)),
        "cat_names": np.array(list(words)),
        "cat_levels": np.array(["|".join(level) for level in levels.values()]),
    }


def covtype(files: Sequence[Path]) -> Arrays:
    """Fifty-four integers and the cover type per line, gzipped."""
    with gzip.open(files[0], "rt", encoding="ascii") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.int16)
    return {"x": np.asfortranarray(table[:, :-1]), "y": table[:, -1].astype(np.uint8)}


def california_housing(files: Sequence[Path]) -> Arrays:
    """Eight numbers and the median value of a house per line."""
    with tarfile.open(files[0], "r:gz") as archive:
        file = archive.extractfile("CaliforniaHousing/cal_housing.data")
        table = np.loadtxt(file, delimiter=",")  # type: ignore[arg-type]
    return {"x": table[:, :-1], "y": table[:, -1]}


def member(archive: Path | io.BytesIO, name: str) -> str:
    """The text of the file `name` in a zip archive, in whichever folder it lies there."""
    with zipfile.ZipFile(archive) as opened:
        found = [entry for entry in opened.namelist() if entry.rsplit("/", 1)[-1] == name]
        if not found:
            raise ValueError(f"the archive holds no {name}")
        return opened.read(found[0]).decode("utf-8")


def _table(text: str, *, delimiter: str = ",", skip: int = 0) -> np.ndarray:
    return np.loadtxt(io.StringIO(text), delimiter=delimiter, skiprows=skip, ndmin=2)
