"""Readers of the published formats, tested on the stored arrays written in those formats."""

import gzip
import os
from pathlib import Path

import numpy as np
import published_files
import pytest

from gramless.papers import formats
from gramless.papers.datasets import CATALOGUE, digest, find


def stored(name):
    path = find(name)
    if path is None:
        pytest.skip(f"{CATALOGUE[name].file} was not found (set GRAMLESS_DATA)")
    with np.load(path, allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files}


def written(folder, contents):
    paths = []
    for number, content in enumerate(contents):
        paths.append(folder / str(number))
        paths[-1].write_bytes(content)
    return paths


@pytest.mark.parametrize("name", ["letter", "pendigits", "spambase", "wine", "wine_quality", "california_housing"])
def test_published_format_gives_the_stored_values(name, tmp_path):
    arrays = stored(name)
    files = written(tmp_path, getattr(published_files, name)(arrays))
    assert digest(CATALOGUE[name].read(files)) == CATALOGUE[name].digest


def test_usps_from_svmlight(tmp_path):
    arrays = stored("usps")
    part = {key: value[:400] for key, value in arrays.items()}
    read = formats.read_usps(written(tmp_path, published_files.usps(part)))
    assert digest(read) == digest(part)


def test_mnist_from_idx(tmp_path):
    arrays = stored("mnist")
    files = written(tmp_path, published_files.mnist(arrays))
    assert digest(formats.read_mnist(files)) == CATALOGUE["mnist"].digest


def test_bank_from_nested_archive(tmp_path):
    stored("bank")
    text = Path(os.environ["GRAMLESS_DATA"]) / "bank-full.csv.gz"
    if not text.exists():
        pytest.skip("bank-full.csv.gz is not in the data folder")
    files = written(tmp_path, published_files.bank(gzip.decompress(text.read_bytes()).decode()))
    assert digest(CATALOGUE["bank"].read(files)) == CATALOGUE["bank"].digest


def test_covtype_from_text(tmp_path):
    arrays = stored("covtype")
    x, y = arrays["x"][:500], arrays["y"][:500]
    text = published_files.lines([*row, label] for row, label in zip(x.tolist(), y.tolist(), strict=True))
    (path,) = written(tmp_path, [gzip.compress(text.encode())])
    read = formats.read_covtype([path])
    assert np.array_equal(read["x"], x)
    assert np.array_equal(read["y"], y)
    assert read["x"].dtype == np.int16


def test_cifar10_from_binary_records_and_back(tmp_path):
    rng = np.random.default_rng(0)
    train = rng.integers(0, 256, (50, 32, 32, 3), dtype=np.uint8)
    test = rng.integers(0, 256, (10, 32, 32, 3), dtype=np.uint8)
    y_train, y_test = rng.integers(0, 10, 50), rng.integers(0, 10, 10)
    files = written(tmp_path, published_files.cifar10(train, y_train, test, y_test))
    dataset = CATALOGUE["cifar10"].dataset("cifar10", formats.read_cifar10(files))
    assert np.array_equal(dataset.x_train.reshape(train.shape), train)
    assert np.array_equal(dataset.x_test.reshape(test.shape), test)
    assert np.array_equal(dataset.y_train, y_train)


def test_cifar10_encoding_equals_the_stored_arrays():
    arrays = stored("cifar10")
    part = {key: value[:, :200] if value.ndim == 4 else value[:200] for key, value in arrays.items()}
    dataset = CATALOGUE["cifar10"].dataset("cifar10", part)
    records = np.moveaxis(dataset.x_train.reshape(-1, 32, 32, 3), 3, 1).reshape(200, -1)
    assert np.array_equal(formats.encode_differences(records), part["d_train"])


@pytest.mark.parametrize("content", [b"", b"\0\0\x08", b"\0\0\x09\x01\0\0\0\0", b"\0\0\x08\x01\0\0\0\x05abc"])
def test_invalid_idx_file_raises(content):
    with pytest.raises(ValueError, match="IDX"):
        formats.parse_idx(content)
