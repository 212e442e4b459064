"""Finding and loading datasets, and the error messages."""

import gzip
import pickle

import numpy as np
import pytest

from gramless.papers.datasets import DatasetError, find, load, names, search_path

SIZES = {
    "mnist": (60_000, 784, 10_000),
    "cifar10": (50_000, 3072, 10_000),
    "usps": (7291, 256, 2007),
    "letter": (16_000, 16, 4000),
    "pendigits": (7494, 16, 3498),
    "covtype": (15_120, 54, 565_892),
}


@pytest.mark.parametrize("name", [name for name in names() if name not in ("cifar10", "covtype", "mnist")])
def test_every_dataset_loads(name):
    if name != "digits" and find(name) is None:
        pytest.skip(f"{name} was not found (set GRAMLESS_DATA)")
    dataset = load(name, download=False)
    n_train, d, n_test = SIZES.get(name, (*dataset.x_train.shape, len(dataset.y_test)))
    assert dataset.x_train.shape == (n_train, d)
    assert dataset.x_test.shape == (n_test, d)
    assert dataset.y_train.shape == (n_train,)
    if dataset.task == "classification":
        assert set(np.unique(dataset.y_test)) <= set(np.unique(dataset.y_train)) | set(np.unique(dataset.y_test))
        labels = np.unique(np.concatenate([dataset.y_train, dataset.y_test]))
        assert dataset.class_names is None or len(dataset.class_names) == len(labels)
    if dataset.image_shape is not None:
        assert int(np.prod(dataset.image_shape)) == d


@pytest.mark.parametrize("name", ["mnist", "cifar10", "covtype"])
def test_large_datasets_load(name):
    if find(name) is None:
        pytest.skip(f"{name} was not found (set GRAMLESS_DATA)")
    dataset = load(name, download=False)
    n_train, d, n_test = SIZES[name]
    assert dataset.x_train.shape == (n_train, d)
    assert len(dataset.y_test) == n_test
    if name == "cifar10":
        assert tuple(dataset.x_train[0, :3]) == (59, 62, 63)
        mean = dataset.x_train.reshape(-1, 3).mean(axis=0) / 255
        assert mean == pytest.approx([0.49139968, 0.48215841, 0.44653091], abs=1e-7)


def test_folders_are_searched_in_order(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAMLESS_DATA", str(tmp_path / "second"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "third"))
    assert search_path(tmp_path / "first") == [
        tmp_path / "first",
        tmp_path / "second",
        tmp_path / "third" / "gramless",
    ]
    for folder in ("second", "third/gramless"):
        (tmp_path / folder).mkdir(parents=True)
        np.savez(tmp_path / folder / "wine.npz", x=np.zeros((4, 13)), y=np.array([0, 0, 1, 1]))
    assert find("wine", tmp_path / "first") == tmp_path / "second" / "wine.npz"


def test_compressed_table_of_the_publisher_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAMLESS_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rows = [f'{30 + i};"{("admin.", "student")[i % 2]}";"{("no", "yes")[i % 3 == 0]}"' for i in range(12)]
    with gzip.open(tmp_path / "bank.csv.gz", "wt") as file:
        file.write("\n".join(['"age";"job";"y"', *rows]))
    dataset = load("bank_small", download=False)
    assert dataset.feature_names == ("age", "job")
    assert dataset.categorical == (1,)
    x, y = dataset.pooled()
    assert sorted(x[:, 0]) == list(range(30, 42))
    np.testing.assert_array_equal(x[:, 1], x[:, 0] % 2)
    np.testing.assert_array_equal(y, x[:, 0] % 3 == 0)


def test_split_depends_on_the_seed():
    first, same, other = load("digits"), load("digits"), load("digits", seed=1)
    assert np.array_equal(first.x_train, same.x_train)
    assert not np.array_equal(first.x_train, other.x_train)
    shares = np.bincount(first.y_test) / np.bincount(load("digits").pooled()[1])
    assert np.allclose(shares, 0.25, atol=0.01)


def test_unknown_name_lists_the_known_names():
    with pytest.raises(DatasetError, match="digits, mnist, cifar10"):
        load("minst")


def test_file_with_pickles_raises(tmp_path):
    class Trap:
        def __reduce__(self):
            return (exec, (f"open({str(tmp_path / 'sprung')!r}, 'w')",))

    np.savez(tmp_path / "wine.npz", x=np.array([Trap()], dtype=object), y=np.zeros(1))
    (tmp_path / "spambase.npz").write_bytes(pickle.dumps(Trap()))
    for name in ("wine", "spambase"):
        with pytest.raises(DatasetError, match="without pickles"):
            load(name, data=tmp_path)
    assert not (tmp_path / "sprung").exists()


def test_truncated_file_raises(tmp_path):
    np.savez(tmp_path / "whole.npz", x=np.zeros((10, 13)), y=np.zeros(10))
    whole = (tmp_path / "whole.npz").read_bytes()
    (tmp_path / "wine.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DatasetError, match=r"wine\.npz cannot be read"):
        load("wine", data=tmp_path)


def test_subsets_of_a_dataset():
    digits = load("digits")
    two = digits.only([3, 8])
    assert set(np.unique(two.y_train)) == {3, 8}
    assert two.class_names == ("3", "8")
    few = digits.sample(100)
    assert len(few.y_train) == 100
    assert np.array_equal(few.x_test, digits.x_test)
    assert np.array_equal(digits.sample(100).x_train, digits.sample(100, seed=0).x_train)
    anew = digits.resplit(500, seed=3)
    assert len(anew.y_test) == 500
    assert anew.split == "random, seed 3"


def test_another_file_of_the_same_name_raises(tmp_path):
    np.savez(tmp_path / "cifar10.npz", x_train=np.zeros((2, 3072)), y_train=np.zeros(2))
    with pytest.raises(DatasetError, match=r"no array 'd_train', only x_train, y_train\. Move it to another folder"):
        load("cifar10", data=tmp_path, download=False)


def test_cache_folder_not_writable_raises_with_advice(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file where a folder should be")
    monkeypatch.delenv("GRAMLESS_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(DatasetError, match=r"cannot write to .*Not a directory.*put mnist\.npz"):
        load("mnist")
