"""File formats of the datasets: the published files, and the `.npz` archives in which the library stores them.

A `read_*` function takes the downloaded files and returns the arrays of the archive. A `decode_*` function takes the arrays
of an archive and returns fields of `Dataset`. No function unpickles data.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
Stored = Mapping[str, np.ndarray]


def read_mnist(files: Sequence[Path]) -> Arrays:
    """Read four IDX files: training images and labels, test images and labels."""
    names = ("x_train", "y_train", "x_test", "y_test")
    return {name: parse_idx(gzip.decompress(path.read_bytes())) for name, path in zip(names, files, strict=True)}


def parse_idx(content: bytes) -> np.ndarray:
    """Parse an IDX file of bytes: a header of 0, 0, type 8 and number of dimensions, then big-endian sizes, then values."""
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise ValueError("not an IDX file of unsigned bytes")
    start = 4 + 4 * content[3]
    shape = tuple(np.frombuffer(content[4:start], dtype=">u4").astype(int))
    values = np.frombuffer(content[start:], dtype=np.uint8)
    if values.size != int(np.prod(shape)):
        raise ValueError(f"an IDX file of shape {shape} has {values.size} values")
    return values.reshape(shape)


def read_cifar10(files: Sequence[Path]) -> Arrays:
    """Read binary CIFAR-10: records of one label and 3 x 32 x 32 bytes, in five training batches and a test batch."""
    batches = {}
    with tarfile.open(files[0], "r:gz") as archive:
        for entry in archive:
            name = Path(entry.name).name
            if entry.isfile() and name.endswith(".bin"):
                content = archive.extractfile(entry).read()  # type: ignore[union-attr]
                batches[name] = np.frombuffer(content, dtype=np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    halves = {
        "train": np.concatenate([batches[f"data_batch_{k}.bin"] for k in range(1, 6)]),
        "test": batches["test_batch.bin"],
    }
    arrays = {f"d_{half}": encode_differences(records[:, 1:]) for half, records in halves.items()}
    return arrays | {f"y_{half}": records[:, 0].copy() for half, records in halves.items()}


def encode_differences(records: np.ndarray) -> np.ndarray:
    """Encode images so that they compress well: planes G, R - G, B - G, as differences of neighbouring pixels modulo 256."""
    red, green, blue = np.moveaxis(records.reshape(-1, 3, 32, 32), 1, 0)
    planes = np.stack([green, red - green, blue - green])
    planes[:, :, :, 1:] -= planes[:, :, :, :-1].copy()
    planes[:, :, 1:, :] -= planes[:, :, :-1, :].copy()
    return planes


def decode_cifar10(arrays: Stored) -> dict[str, Any]:
    """Return the fields of a CIFAR-10 archive, with images decoded by the inverse of `encode_differences`."""

    def decode(planes: np.ndarray) -> np.ndarray:
        p = np.cumsum(np.cumsum(planes, axis=2, dtype=np.uint8), axis=3, dtype=np.uint8)
        return np.stack([p[1] + p[0], p[0], p[2] + p[0]], axis=-1)

    return decode_split({**arrays, "x_train": decode(arrays["d_train"]), "x_test": decode(arrays["d_test"])})


def read_usps(files: Sequence[Path]) -> Arrays:
    """Read two svmlight files with labels 1 to 10 for the digits 0 to 9 and values of three decimals in [-1, 1]."""
    from sklearn.datasets import load_svmlight_file  # the import takes 0.1 s

    arrays: Arrays = {}
    for half, path in zip(("train", "test"), files, strict=True):
        x, y = load_svmlight_file(io.BytesIO(bz2.decompress(path.read_bytes())), n_features=256, zero_based=False)
        arrays[f"x_{half}"] = np.rint(1000 * x.toarray()).astype(np.int16).reshape(-1, 16, 16)
        arrays[f"y_{half}"] = (y - 1).astype(np.uint8)
    return arrays


def read_letter(files: Sequence[Path]) -> Arrays:
    """Read lines that have a letter and sixteen integers; the first 16,000 lines are the training rows."""
    rows = [line.split(",") for line in read_member(files[0], "letter-recognition.data").split()]
    y = np.array([ord(row[0]) - ord("A") for row in rows], dtype=np.uint8)
    x = np.array([row[1:] for row in rows], dtype=np.uint8)
    return {"x_train": x[:16_000], "y_train": y[:16_000], "x_test": x[16_000:], "y_test": y[16_000:]}


def read_tables(
    files: Sequence[Path],
    members: Mapping[str, str],
    *,
    label: int = -1,
    first_label: int = 0,
    delimiter: str = ",",
    skiprows: int = 0,
    dtype: str = "float64",
) -> Arrays:
    """Read text tables of numbers from an archive.

    `members` maps a suffix of array names, such as "_train", to a file. The column with the index `label` has the labels.
    """
    arrays: Arrays = {}
    for suffix, member in members.items():
        text = io.StringIO(read_member(files[0], member))
        table = np.loadtxt(text, delimiter=delimiter, skiprows=skiprows, ndmin=2)
        arrays[f"x{suffix}"] = np.delete(table, label, axis=1).astype(dtype)
        arrays[f"y{suffix}"] = (table[:, label] - first_label).astype(np.uint8)
    return arrays


def read_bank(files: Sequence[Path], member: str) -> Arrays:
    """Read one of the two tables of `bank.zip`, which is inside the downloaded archive."""
    with zipfile.ZipFile(files[0]) as outer:
        inner = io.BytesIO(outer.read("bank.zip"))
    return parse_bank(read_member(inner, member))


def parse_bank(text: str) -> Arrays:
    """Parse a table with numeric and text columns; category codes follow the alphabetical order of the texts."""
    header, *rows = csv.reader(io.StringIO(text), delimiter=";")
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    answer = columns.pop("y")
    numbers = {name: values for name, values in columns.items() if values[0].lstrip("-").isdigit()}
    strings = {name: values for name, values in columns.items() if name not in numbers}
    levels = {name: sorted(set(values)) for name, values in strings.items()}
    codes = [np.searchsorted(levels[name], values) for name, values in strings.items()]
    return {
        "x_num": np.array(list(numbers.values()), dtype=np.int32).T,
        "x_cat": np.array(codes, dtype=np.uint8).T,
        "y": np.array([word == "yes" for word in answer], dtype=np.uint8),
        "num_names": np.array(list(numbers)),
        "cat_names": np.array(list(strings)),
        "cat_levels": np.array(["|".join(level) for level in levels.values()]),
    }


def decode_bank(arrays: Stored) -> dict[str, Any]:
    """Return seven numeric columns followed by nine columns of category codes."""
    numbers, codes = arrays["x_num"], arrays["x_cat"]
    x = np.column_stack([numbers.astype(np.float64), codes.astype(np.float64)])
    return {
        **decode_unsplit({"x": x, "y": arrays["y"]}),
        "feature_names": (*map(str, arrays["num_names"]), *map(str, arrays["cat_names"])),
        "categorical": tuple(range(numbers.shape[1], x.shape[1])),
    }


def read_covtype(files: Sequence[Path]) -> Arrays:
    """Read gzipped lines of 54 integers and the cover type."""
    with gzip.open(files[0], "rt", encoding="ascii") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.int16)
    return {"x": np.asfortranarray(table[:, :-1]), "y": table[:, -1].astype(np.uint8)}


def read_california_housing(files: Sequence[Path]) -> Arrays:
    """Read lines of eight numbers and the median value of a house."""
    with tarfile.open(files[0], "r:gz") as archive:
        file = archive.extractfile("CaliforniaHousing/cal_housing.data")
        table = np.loadtxt(file, delimiter=",")  # type: ignore[arg-type]
    return {"x": table[:, :-1], "y": table[:, -1]}


def decode_split(arrays: Stored, divide: int | None = None) -> dict[str, Any]:
    """Return the training and test rows of an archive with a split; images are flattened and divided by `divide`."""
    x = {key: arrays[key].reshape(len(arrays[key]), -1) for key in ("x_train", "x_test")}
    if divide is not None:
        x = {key: value.astype(np.float32) / divide for key, value in x.items()}
    return {**x, "y_train": arrays["y_train"], "y_test": arrays["y_test"]}


def decode_unsplit(arrays: Stored, suffix: str = "", n_train: int | None = None) -> dict[str, Any]:
    """Return the first `n_train` rows of an archive (by default all) as training rows, and the remaining as test rows."""
    x, y = arrays[f"x{suffix}"], arrays[f"y{suffix}"]
    n = len(x) if n_train is None else n_train
    return {"x_train": x[:n], "y_train": y[:n], "x_test": x[n:], "y_test": y[n:]}


def read_member(archive: Path | io.BytesIO, name: str) -> str:
    """Return the text of the file `name` in any folder of a zip archive."""
    with zipfile.ZipFile(archive) as opened:
        found = [entry for entry in opened.namelist() if entry.rsplit("/", 1)[-1] == name]
        if not found:
            raise ValueError(f"the archive has no file {name}")
        return opened.read(found[0]).decode("utf-8")
