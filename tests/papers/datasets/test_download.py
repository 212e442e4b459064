"""Downloads from a local server: complete, truncated, wrong and missing files."""

import contextlib
import hashlib
import socket
from dataclasses import replace

import numpy as np
import published_files
import pytest
from server import Files
from sklearn.datasets import load_wine

from gramless.papers.datasets import CATALOGUE, DatasetError, digest, fetch, find, load

CONTENT = bytes(range(256)) * 4000
SUM = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("GRAMLESS_DATA", raising=False)
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)  # between two attempts
    return tmp_path / "cache" / "gramless"


def point_at(monkeypatch, name, addresses, checksums=None):
    """Replace the addresses of the dataset `name`."""
    urls = list(zip(addresses, checksums or [None] * len(addresses), strict=True))
    monkeypatch.setitem(CATALOGUE, name, replace(CATALOGUE[name], urls=urls))


def wine_archive():
    bunch = load_wine()
    return published_files.wine({"x": bunch.data, "y": bunch.target})[0]


def test_download_of_a_file(tmp_path):
    reports = []
    with Files({"/a": CONTENT}) as server:
        path = fetch(f"{server.address}/a", tmp_path, "a", SUM, progress=lambda *report: reports.append(report))
        again = fetch(f"{server.address}/a", tmp_path, "a", SUM)
        assert len(server.requests) == 1
    assert path == again
    assert path.read_bytes() == CONTENT
    assert reports[-1] == ("a", len(CONTENT), len(CONTENT))
    assert [child.name for child in tmp_path.iterdir()] == ["a"]


def test_closed_connection_is_retried(tmp_path):
    with Files({"/a": CONTENT}, cut_after=300_000) as server:
        path = fetch(f"{server.address}/a", tmp_path, "a", SUM)
        assert len(server.requests) == 2
    assert path.read_bytes() == CONTENT
    assert [child.name for child in tmp_path.iterdir()] == ["a"]


def test_truncated_download_raises_and_leaves_no_file(tmp_path):
    with (
        Files({"/a": CONTENT}, cut_after=100_000, cut_always=True) as server,
        pytest.raises(DatasetError, match="the connection was closed before the end of the file"),
    ):
        fetch(f"{server.address}/a", tmp_path, "a", SUM)
    assert len(server.requests) == 3
    assert list(tmp_path.iterdir()) == []


def test_wrong_checksum_raises_and_leaves_no_file(tmp_path):
    with (
        Files({"/a": CONTENT[:-1] + b"!"}) as server,
        pytest.raises(DatasetError, match="checksum differs"),
    ):
        fetch(f"{server.address}/a", tmp_path, "a", SUM)
    assert list(tmp_path.iterdir()) == []


def test_missing_url_raises(tmp_path):
    with Files({}) as server, pytest.raises(DatasetError, match="404"):
        fetch(f"{server.address}/a", tmp_path, "a", SUM)


def test_unreachable_server_raises_with_advice(monkeypatch, tmp_path):
    with contextlib.closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/wine.zip"
    point_at(monkeypatch, "wine", [address])
    with pytest.raises(DatasetError, match=r"cannot be reached.*put wine\.npz .* into one of") as trouble:
        load("wine", data=tmp_path)
    assert str(tmp_path) in str(trouble.value)


def test_dataset_is_downloaded_once(monkeypatch, empty_cache):
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


def test_other_values_raise(monkeypatch, empty_cache):
    bunch = load_wine()
    changed = bunch.data.copy()
    changed[3, 4] += 1e-9
    archive = published_files.wine({"x": changed, "y": bunch.target})[0]
    with Files({"/wine.zip": archive}) as server:
        point_at(monkeypatch, "wine", [f"{server.address}/wine.zip"])
        with pytest.raises(DatasetError, match="other values"):
            load("wine")
    assert [path for path in empty_cache.rglob("*") if path.is_file()] == []


def test_invalid_archive_raises(monkeypatch, empty_cache):
    with Files({"/wine.zip": b"<html>please log in</html>"}) as server:
        point_at(monkeypatch, "wine", [f"{server.address}/wine.zip"])
        with pytest.raises(DatasetError, match="cannot be read"):
            load("wine")
    assert [path for path in empty_cache.rglob("*") if path.is_file()] == []


def test_no_download_if_disabled(monkeypatch):
    with Files({"/wine.zip": wine_archive()}) as server:
        point_at(monkeypatch, "wine", [f"{server.address}/wine.zip"])
        with pytest.raises(DatasetError, match=r"put wine\.npz"):
            load("wine", download=False)
        assert server.requests == []


def test_every_dataset_has_a_digest_and_addresses():
    for entry in CATALOGUE.values():
        assert len(entry.digest) == 64
        assert all(url.startswith("https://") for url, _ in entry.urls)
        assert all(checksum is None or checksum.split(":")[0] in ("md5", "sha256") for _, checksum in entry.urls)
    assert digest({"a": np.zeros(2)}) != digest({"a": np.zeros(2, "f4")})
