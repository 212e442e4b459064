"""Rows kept as bytes: found where the data is on a grid, exact where it is, left alone where it is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gramless._core import arrays as xa
from gramless._core.grid import GridRows, has_integer_products, on_grid
from gramless.images import UnitNormalizer
from gramless.kernels import RBF, Columns, Laplacian, Linear, Polynomial
from gramless.linalg.operators import KernelOperator, blocks, byte_rows, evaluate, expand

pytestmark = pytest.mark.skipif(not has_integer_products(), reason="this processor has neither AVX-512 nor AVX2")


@pytest.fixture(autouse=True)
def small_blocks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "TUNING", replace(blocks.TUNING, min_operations_for_bytes=0))


def pixels(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, d)).astype(np.float32)


@pytest.mark.parametrize("d", [32, 37, 100, 784])
@pytest.mark.parametrize(("n", "m"), [(256, 300), (1024, 256), (271, 611)])
def test_products_of_rows_on_grids_are_rounded_once(n: int, m: int, d: int) -> None:
    normalise = UnitNormalizer()
    X, Y = normalise.fit_transform(pixels(n, d)), normalise.fit_transform(pixels(m, d, 1))
    left, right = on_grid(X), on_grid(Y)
    assert left is not None
    assert right is not None
    truth = left.astype(np.float64) @ right.astype(np.float64).T
    np.testing.assert_allclose(xa.dot(left, right), truth, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(truth, X.astype(np.float64) @ Y.astype(np.float64).T, atol=2e-6)


def test_integers_are_exact() -> None:
    X = pixels(300, 64)
    rows = on_grid(X)
    assert rows is not None
    exact = X.astype(np.int64) @ X.astype(np.int64).T
    np.testing.assert_array_equal(xa.dot(rows, rows), exact.astype(np.float32))
    np.testing.assert_array_equal(rows.square_norms(), np.diag(exact).astype(np.float32))
    np.testing.assert_array_equal(rows.astype(np.float32), X)


@pytest.mark.parametrize("d", [32, 63, 64, 65, 123, 784])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-0.5, 2.25)])
def test_rows_of_two_values_are_multiplied_as_bits(d: int, low: float, high: float) -> None:
    """The products equal those of the same rows as bytes: one other row with a third value rules out the bits."""
    from gramless._core.compiled.integer_products import _pack_bits

    X = np.where(np.random.default_rng(0).random((513, d)) < 0.2, high, low).astype(np.float32)
    X[7], X[8] = low, high
    bits = on_grid(X)
    rows = on_grid(np.concatenate([X, pixels(1, d)]))
    assert bits is not None
    assert rows is not None
    assert len(_pack_bits(bits.codes)) == -(-d // 64)
    assert len(_pack_bits(rows.codes)) == 0
    np.testing.assert_array_equal(xa.dot(bits[:300], bits), xa.dot(rows[:300], rows)[:, :-1])
    truth = X[:300].astype(np.float64) @ X.astype(np.float64).T
    np.testing.assert_allclose(xa.dot(bits[:300], bits), truth, rtol=1e-7, atol=1e-6)
    exact = RBF(1 / d)(X[:300].astype(np.float64), X.astype(np.float64))
    np.testing.assert_allclose(RBF(1 / d)(bits[:300], bits), exact, atol=1e-6)


def test_the_largest_sums_fit() -> None:
    X = np.full((256, 33_000), 255.0, np.float32)
    X[:, 0] = 0.0
    rows = on_grid(X)
    assert rows is not None
    assert xa.dot(rows[:5], rows[:7])[3, 3] == np.float32(255.0**2 * 32_999)
    assert xa.dot(rows[:70], rows[:70])[3, 3] == np.float32(255.0**2 * 32_999)


def codes_of(rng: np.random.Generator, n: int, d: int, share: float, background: int, mixed: bool) -> np.ndarray:
    """Rows of which a share differs from one code; where mixed, every third has all codes, every fourth only one."""
    codes = rng.integers(0, 256, (n, -(-d // 4) * 4)).astype(np.uint8)
    thick = np.arange(n) % 3 == 1 if mixed else np.zeros(n, bool)
    codes[(rng.random(codes.shape) >= share) & ~thick[:, None]] = background
    if mixed:
        codes[::4] = background
    codes[:, d:] = 0
    return codes


@settings(max_examples=150, deadline=None)
@given(
    n=st.integers(1, 40),
    m=st.integers(1, 140),
    d=st.integers(1, 90),
    share=st.sampled_from([0.0, 0.01, 0.1, 0.3, 0.6, 1.0]),
    background=st.sampled_from([0, 0, 1, 128, 255]),
    mixed=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_rows_of_mostly_one_code_are_multiplied_exactly(
    n: int, m: int, d: int, share: float, background: int, mixed: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    left, right = (codes_of(rng, rows, d, share, background, mixed) for rows in (n, m))
    exact = left.astype(np.int64) @ right.astype(np.int64).T
    plain = [GridRows(codes, np.ones(len(codes)), np.zeros(len(codes)), d) for codes in (left, right)]
    np.testing.assert_array_equal(xa.dot(*plain), exact.astype(np.float32))
    # Into part of a larger array, from grids of all kinds.
    grids = [GridRows(codes, rng.normal(size=len(codes)), rng.normal(size=len(codes)), d) for codes in (left, right)]
    larger = np.full((n + 1, m + 3), np.float32(7.0))
    xa.dot(*grids, out=larger[:n, 1 : m + 1])
    dense = [rows.astype(np.float64) for rows in grids]
    bound = np.abs(dense[0]) @ np.abs(dense[1]).T
    assert (np.abs(larger[:n, 1 : m + 1] - dense[0] @ dense[1].T) <= 1e-7 * bound + 1e-30).all()
    assert (larger[n] == 7.0).all()
    assert (larger[:, [0, m + 1, m + 2]] == 7.0).all()


@pytest.mark.parametrize("d", [440, 448, 452, 1000, 3000])
@pytest.mark.parametrize("share", [0.0, 0.002, 0.3])
def test_long_rows_are_multiplied_chunk_by_chunk(d: int, share: float) -> None:
    rng = np.random.default_rng(d)
    left, right = (codes_of(rng, n, d, share, 7, True) for n in (130, 75))
    exact = left.astype(np.int64) @ right.astype(np.int64).T
    rows = [GridRows(codes, np.ones(len(codes)), np.zeros(len(codes)), d) for codes in (left, right)]
    np.testing.assert_array_equal(xa.dot(*rows), exact.astype(np.float32))


@pytest.mark.parametrize("background", [0, 100, 255])
def test_rows_are_listed_where_that_is_less_work(background: int) -> None:
    from gramless._core.compiled import integer_products as compiled

    if not compiled._USE_LISTS:
        pytest.skip("this processor multiplies bytes, for which rows are not stored as lists")
    rng = np.random.default_rng(0)
    found, listed = np.zeros(50, np.uint8), np.zeros(50, np.uint8)
    for share, expected in ((0.0, True), (0.1, True), (0.9, False), (1.0, False)):
        codes = codes_of(rng, 50, 200, share, background, False)
        assert compiled._select_listed_rows(codes, 1000, found, listed) == 50 * expected
        assert (listed == expected).all()
        if expected:
            assert (found == background).all()
    # For a single right row, building a list takes longer than the product.
    assert compiled._select_listed_rows(codes_of(rng, 50, 200, 0.1, background, False), 1, found, listed) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda rng: rng.normal(size=(400, 50)),
        lambda rng: pixels(400, 50) * rng.normal(size=50),  # one grid for each feature, not for each row
        lambda rng: np.where(rng.random((400, 50)) < 0.002, rng.random((400, 50)), pixels(400, 50)),
        lambda rng: np.full((400, 50), np.nan),
        lambda rng: np.where(rng.random((400, 50)) < 0.5, np.inf, 0.0),
        lambda rng: pixels(400, 31),
        lambda rng: pixels(255, 50),
    ],
    ids=["normal", "scaled features", "a few off the grid", "nan", "inf", "few features", "few rows"],
)
def test_other_data_is_left_alone(make) -> None:
    with np.errstate(invalid="ignore"):
        assert on_grid(make(np.random.default_rng(0)).astype(np.float32)) is None


def test_float64_and_lists_are_left_alone() -> None:
    assert on_grid(pixels(300, 40).astype(np.float64)) is None
    assert on_grid([[1.0]]) is None


@settings(max_examples=40, deadline=None)
@given(
    levels=st.integers(1, 255),
    scale=st.floats(1e-6, 1e6),
    offset=st.floats(-3.0, 3.0),
    seed=st.integers(0, 10_000),
)
def test_every_grid_is_found(levels: int, scale: float, offset: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = (scale * (rng.integers(0, levels + 1, (256, 40)) / levels + offset)).astype(np.float32)
    rows = on_grid(X)
    assert rows is not None
    error = np.abs(rows.astype(np.float64) - X).max(axis=1)
    assert (error <= 4.1 * np.finfo(np.float32).eps * np.abs(X).max(axis=1)).all()


def test_constant_rows_are_on_a_grid() -> None:
    X = pixels(256, 40)
    X[3] = 7.5
    rows = on_grid(X)
    assert rows is not None
    np.testing.assert_array_equal(rows.astype(np.float32)[3], X[3])


@pytest.mark.parametrize(
    "kernel",
    [
        Linear(),
        Polynomial(degree=4, gamma=0.5, coef0=1.0),
        RBF(gamma=0.3),
        RBF(gamma=0.3) + 2.0 * Polynomial(degree=2, gamma=1.0) ** 2,
        Columns(Linear(), slice(0, 20)) * RBF(gamma=0.1),
        Laplacian(gamma=0.05),
    ],
    ids=repr,
)
def test_kernels_of_bytes_are_those_of_numbers(kernel) -> None:
    X = UnitNormalizer().fit_transform(pixels(900, 60))
    T = UnitNormalizer().fit_transform(pixels(300, 60, 1))
    double = [Z.astype(np.float64) for Z in (X, T)]
    coef = np.random.default_rng(2).normal(size=(900, 4)).astype(np.float32)
    truth = kernel(double[1], double[0])
    np.testing.assert_allclose(evaluate(kernel, T, X), truth, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(expand(kernel, T, X, coef), truth @ coef, rtol=1e-4, atol=1e-3)
    op = KernelOperator(X, kernel, 0.1)
    np.testing.assert_allclose(op.diag(), kernel.diag(double[0]) + 0.1, rtol=1e-5)
    some = kernel(double[0][[5, 700]], double[0])
    some[[0, 1], [5, 700]] += 0.1
    np.testing.assert_allclose(op.rows(np.array([5, 700])), some, rtol=1e-5, atol=1e-5)


def test_kernels_say_whether_they_take_bytes() -> None:
    rows = on_grid(UnitNormalizer().fit_transform(pixels(300, 60)))
    assert isinstance(rows, GridRows)
    assert Polynomial().accepts_grid(rows)
    assert RBF().accepts_grid(rows)
    assert not Laplacian().accepts_grid(rows)
    assert not (RBF() * Laplacian()).accepts_grid(rows)
    assert not Columns(RBF(), slice(0, 3)).accepts_grid(rows)


def test_distances_far_from_the_origin_keep_their_digits() -> None:
    X = pixels(400, 40) % 4 + 4096.0
    rows = on_grid(X)
    assert rows is not None
    assert not RBF().accepts_grid(rows)
    truth = RBF(gamma=0.02)(X.astype(np.float64), X.astype(np.float64))
    np.testing.assert_allclose(evaluate(RBF(gamma=0.02), X, X), truth, rtol=1e-5)


def test_bytes_and_numbers_mix() -> None:
    X, Y = pixels(300, 40), np.random.default_rng(0).normal(size=(5, 40)).astype(np.float32)
    np.testing.assert_allclose(xa.dot(on_grid(X), Y), X @ Y.T, rtol=1e-5, atol=1e-2)
    np.testing.assert_allclose(xa.dot(Y, on_grid(X)), Y @ X.T, rtol=1e-5, atol=1e-2)


def test_small_blocks_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    X = pixels(300, 40)
    assert xa.is_grid(byte_rows(Linear(), X, 300))
    monkeypatch.undo()
    assert byte_rows(Linear(), X, 300) is X


@pytest.mark.parametrize("place", [(0, 0), (0, 5), (299, 63), (255, 31)])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_on_no_grid(place: tuple[int, int], value: float) -> None:
    X = pixels(300, 64)
    X[place] = value
    assert on_grid(X) is None


def test_data_that_may_not_be_written_to_is_read() -> None:
    X = pixels(300, 64)
    X.flags.writeable = False
    rows = on_grid(X)
    assert rows is not None
    np.testing.assert_array_equal(rows.astype(np.float32), X)
    np.testing.assert_array_equal(evaluate(Linear(), X, X), X @ X.T)
