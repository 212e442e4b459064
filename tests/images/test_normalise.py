import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose

from gramless.images import GaussianWindow, Scale01, SpectrumFeatures, UnitNormalizer

stacks = arrays(np.uint8, st.tuples(*[st.integers(1, 6)] * 3))


@given(stacks)
def test_images_become_centred_unit_vectors_or_zero(X):
    V = UnitNormalizer().transform(X)
    constant = np.ptp(X.reshape(len(X), -1), axis=1) == 0
    assert_allclose(np.linalg.norm(V, axis=1), ~constant, atol=1e-5)
    assert_allclose(V.sum(axis=1), 0, atol=1e-4)


@given(stacks)
def test_fourier_features_follow_the_formulas(X):
    features = SpectrumFeatures().transform(X)
    for x, found in zip(X.astype(float), features, strict=True):
        xi = x - x.mean()
        vector = xi.T.ravel()
        phi = np.sqrt(np.abs(np.fft.fft(vector)))[: (len(vector) + 1) // 2]
        phi = phi - phi.mean()
        # Where a spectrum is flat up to rounding its direction is rounding too; both answers are then right.
        if 0 < np.linalg.norm(phi) < 1e-4 * max(1, np.linalg.norm(xi)):
            continue
        expected = [v / (np.linalg.norm(v) or 1) for v in (xi.ravel(), phi)]
        assert_allclose(found, np.concatenate(expected) / 2**0.5, atol=2e-3)


def test_spectrum_of_colour_runs_over_columns_channel_by_channel():
    x = np.random.default_rng(0).random((1, 3, 4, 2))
    vector = np.concatenate([x[0, :, :, channel].T.ravel() for channel in range(2)])
    phi = np.sqrt(np.abs(np.fft.fft(vector - vector.mean())))[:12]
    phi -= phi.mean()
    assert_allclose(SpectrumFeatures().transform(x)[0, 24:], phi / np.linalg.norm(phi) / 2**0.5)


def test_numbers_of_features_in_the_paper():
    assert SpectrumFeatures().fit(np.ones((1, 28, 28))).transform(np.ones((1, 28, 28))).shape == (1, 1176)
    assert SpectrumFeatures().transform(np.ones((1, 32, 32, 3))).shape == (1, 4608)
    assert len(SpectrumFeatures().fit(np.ones((1, 28, 28))).get_feature_names_out()) == 1176


def test_window_follows_the_formula_on_every_channel():
    L = 6
    i = np.arange(1, L + 1)
    for c in (4 / L**2, 0.3):
        G = np.exp(-c * ((i[:, None] - L / 2) ** 2 + (i - L / 2) ** 2))
        out = GaussianWindow(None if c == 4 / L**2 else c).transform(np.ones((2, L, L, 3)))
        assert_allclose(out, np.broadcast_to(G[:, :, None], out.shape))


@given(stacks)
def test_scaled_images_span_zero_to_one(X):
    out = Scale01().transform(X).reshape(len(X), -1)
    constant = np.ptp(X.reshape(len(X), -1), axis=1) == 0
    assert_allclose(out.min(axis=1), 0)
    assert_allclose(out.max(axis=1), ~constant)
