"""Downloads from a server of this machine: good, cut short, wrong, gone, and never with pickles."""

import contextlib
import hashlib
import socket

import numpy as np
import originals_written
import pytest
from server import Files
from sklearn.datasets import load_wine

from gramless.papers.datasets import DatasetError, find, load
from gramless.papers.datasets import catalogue as catalogue_module
from gramless.papers.datasets.catalogue import CATALOGUE, Entry, Original
from gramless.papers.datasets.download import fetch

CONTENT = bytes(range(256)) * 4000
SUM = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("GRAMLESS_DATA", raising=False)
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)  # between two attempts
    return tmp_path / "cache" / "gramless"


def point_at(monkeypatch, name, addresses, checksums=None):
    """Let dataset `name` come from the given addresses."""
    entry = CATALOGUE[name]
    files = list(zip(addresses, checksums or [None] * len(addresses), strict=True))
    moved = Original(files, entry.original.read, entry.original.digest)
    monkeypatch.setitem(CATALOGUE, name, Entry(entry.file, entry.layout, entry.about, moved))


def wine_archive():
    bunch = load_wine()
    return originals_written.wine({"x": bunch.data, "y": bunch.target})[0]


def test_a_good_file_arrives(tmp_path):
    heard = []
    with Files({"/a": CONTENT}) as server:
        path = fetch(f"{server.address}/a", tmp_path, "a", SUM, progress=lambda *news: heard.append(news))
        again = fetch(f"{server.address}/a", tmp_path, "a", SUM)
        assert len(server.requests) == 1
    assert path == again
    assert path.read_bytes() == CONTENT
    assert heard[-1] == ("a", len(CONTENT), len(CONTENT))
    assert [child.name for child in tmp_path.iterdir()] == ["a"]


def test_a_cut_connection_is_tried_again(tmp_path):
    with Files({"/a": CONTENT}, cut_after=300_000) as server:
        path = fetch(f"{server.address}/a", tmp_path, "a", SUM)
        assert len(server.requests) == 2
    assert path.read_bytes() == CONTENT
    assert [child.name for child in tmp_path.iterdir()] == ["a"]


def test_an_answer_that_is_always_cut_is_an_error_and_keeps_nothing(tmp_path):
    with (
        Files({"/a": CONTENT}, cut_after=100_000, cut_always=True) as server,
        pytest.raises(DatasetError, match="the connection ended before the file did"),
    ):
        fetch(f"{server.address}/a", tmp_path, "a", SUM)
    assert len(server.requests) == 3
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_checksum_keeps_nothing(tmp_path):
    with (
        Files({"/a": CONTENT[:-1] + b"!"}) as server,
        pytest.raises(DatasetError, match="checksum differs"),
    ):
        fetch(f"{server.address}/a", tmp_path, "a", SUM)
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_there_is_said(tmp_path):
    with Files({}) as server, pytest.raises(DatasetError, match="404"):
        fetch(f"{server.address}/a", tmp_path, "a", SUM)


def test_an_unreachable_server_is_said_with_what_to_do(monkeypatch, tmp_path):
    with contextlib.closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/wine.zip"
    point_at(monkeypatch, "wine", [address])
    with pytest.raises(DatasetError, match=r"cannot be reached.*put wine\.npz .* into one of") as trouble:
        load("wine", data=tmp_path)
    assert str(tmp_path) in str(trouble.value)


def test_a_dataset_comes_from_its_original_once(monkeypatch, empty_cache):
    with Files({"/wine.zip": wine_archive()}) as server:
        point_at(monkeypatch, "wine", [f"{server.address}/wine.zip"])
        first = load("wine")
        second = load("wine")
        assert len(server.requests) == 1
    bunch = load_wine()
    x, y = first.pooled()
    assert sorted(map(tuple, x)) == sorted(map(tuple, bunch.data))
    assert np.bincount(y).tolist() == [59, 71, 48]
    assert np.array_equal(first.x_train, second.x_train)
    assert find("wine") == empty_cache / "wine.npz"
    assert [path.name for path in empty_cache.rglob("*") if path.is_file()] == ["wine.npz"]


def test_other_values_are_refused_though_they_read_well(monkeypatch, empty_cache):
    bunch = load_wine()
    changed = bunch.data.copy()
    changed[3, 4] += 1e-9
    archive = originals_written.wine({"x": changed, "y": bunch.target})[0]
    with Files({"/wine.zip": archive}) as server:
        point_at(monkeypatch, "wine", [f"{server.address}/wine.zip"])
        with pytest.raises(DatasetError, match="other values"):
            load("wine")
    assert [path for path in empty_cache.rglob("*") if path.is_file()] == []


def test_what_is_no_archive_is_refused(monkeypatch, empty_cache):
    with Files({"/wine.zip": b"<html>please log in</html>"}) as server:
        point_at(monkeypatch, "wine", [f"{server.address}/wine.zip"])
        with pytest.raises(DatasetError, match="cannot be read"):
            load("wine")
    assert [path for path in empty_cache.rglob("*") if path.is_file()] == []


def test_no_download_when_none_is_wanted(monkeypatch):
    with Files({"/wine.zip": wine_archive()}) as server:
        point_at(monkeypatch, "wine", [f"{server.address}/wine.zip"])
        with pytest.raises(DatasetError, match=r"put wine\.npz"):
            load("wine", download=False)
        assert server.requests == []


def test_every_original_has_a_digest_and_an_address():
    for entry in CATALOGUE.values():
        assert len(entry.original.digest) == 64
        assert all(url.startswith("https://") for url, _ in entry.original.files)
        assert all(checksum is None or checksum.split(":")[0] in ("md5", "sha256") for _, checksum in entry.original.files)
    assert catalogue_module.digest({"a": np.zeros(2)}) != catalogue_module.digest({"a": np.zeros(2, "f4")})
