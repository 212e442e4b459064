"""Effects of categories on the target: cross-fitting, leakage, new levels and missing values."""

import numpy as np
import pandas as pd
import pytest

import gramless
from gramless import TableClassifier, TableRegressor, to_onnx
from gramless.tables.target_encoding import MISSING, NEW, fit_effects, level_effects


def crossed(n=3000, levels=200, seed=0, noise=1.0):
    """Rows with a number, and a category of many levels whose effects have the standard deviation 1."""
    rng = np.random.default_rng(seed)
    effects = rng.normal(size=levels)
    codes = rng.integers(0, levels, n)
    x = rng.normal(size=n)
    y = x + effects[codes] + noise * rng.normal(size=n)
    return pd.DataFrame({"x": x, "group": [f"g{code}" for code in codes]}), y, effects[codes]


def test_effects_are_shrunk_means_of_the_other_folds():
    rng = np.random.default_rng(0)
    codes, weights, folds = rng.integers(-1, 5, 400), rng.uniform(0.5, 2.0, 400), rng.integers(0, 10, 400)
    Z = rng.normal(size=(400, 2)) + 2 * rng.normal(size=(6, 2))[codes]
    table, effects, is_significant = level_effects(codes, 5, Z, weights, folds)
    assert is_significant
    centred = Z - np.average(Z, axis=0, weights=weights)
    level = codes == 2
    sums, total = weights[level] @ centred[level], weights[level].sum()
    shrinkage = sums / table[2] - total
    assert (shrinkage > 0).all()
    for row in (3, 77, 210):
        others = (codes == codes[row]) & (folds != folds[row])
        expected = weights[others] @ centred[others] / (weights[others].sum() + shrinkage)
        np.testing.assert_allclose(effects[row], expected)
    np.testing.assert_array_equal(table[NEW], 0.0)
    assert np.abs(table[MISSING]).min() > 0.1  # missing values occur in training and are a level


def test_the_shrinkage_is_the_ratio_of_the_variances():
    X, y, _ = crossed(20_000, 400, noise=2.0)
    codes = pd.factorize(X["group"])[0]
    Z = np.asarray(y - X["x"])[:, None]
    table, _, _ = level_effects(codes, 400, Z, np.ones(len(y)), np.zeros(len(y), dtype=int))
    counts = np.bincount(codes)
    means = np.bincount(codes, weights=Z[:, 0] - Z.mean()) / counts
    np.testing.assert_allclose(means / table[:400, 0] * counts - counts, 4.0, rtol=0.25)  # 2^2 / 1^2


def test_a_category_that_determines_the_target_has_finite_effects():
    codes = np.append(np.arange(60) % 3, 3)  # the level 3 has a single row, so no row in the other folds
    Z = np.where(codes == 1, 1.0, -1.0)[:, None]
    table, effects, _ = level_effects(codes, 4, Z, np.ones(61), np.arange(61) % 10)
    assert np.isfinite(table).all()
    centred = Z - Z.mean()
    np.testing.assert_allclose(effects[:60], centred[:60], rtol=1e-5)
    np.testing.assert_array_equal(effects[60], 0.0)


def test_an_effect_does_not_contain_the_target_of_its_row():
    X, y, _ = crossed()
    codes = pd.factorize(X["group"])[0][:, None].astype(np.int32)
    other = y.copy()
    same = np.flatnonzero(codes[:, 0] == codes[0, 0])
    other[0] += 1e-3
    one, two = (fit_effects(codes, [200], z[:, None], np.ones(len(y)), 0, None)[1][:, 0] for z in (y, other))
    change = np.abs(two - one)
    assert change[0] < 1e-6  # through the mean of all rows and the shrinkage only
    assert change[same].max() > 1e-5  # rows of the same level in other folds change


@pytest.mark.parametrize("cls", [TableRegressor, TableClassifier])
def test_a_column_of_noise_with_many_categories_changes_nothing(cls):
    rng = np.random.default_rng(1)
    n = 2600
    X = pd.DataFrame(rng.normal(size=(2 * n, 2)), columns=["a", "b"])
    f = np.sin(2 * X["a"]) + X["b"]
    y = (f + 0.5 * rng.normal(size=2 * n)).to_numpy()
    y = y if cls is TableRegressor else y > 0
    with_noise = X.assign(noise=[f"level {k}" for k in rng.integers(0, 2000, 2 * n)])
    types = {"noise": "category"}
    plain = cls(random_state=0, time_budget=1).fit(X[:n], y[:n])
    noisy = cls(random_state=0, time_budget=1, column_types=types).fit(with_noise[:n], y[:n])
    scores = plain.score(X[n:], y[n:]), noisy.score(with_noise[n:], y[n:])
    assert abs(scores[0] - scores[1]) < 0.02


def test_effects_of_many_categories_are_learned_and_new_levels_are_predicted(tmp_path):
    X, y, effect = crossed()
    model = TableRegressor(random_state=0, time_budget=1).fit(X[:2000], y[:2000])
    assert model.columns_.effects_[0].shape == (202, 1)
    # The best model knows the effects up to the noise of about ten rows per level.
    best = np.sqrt(np.mean((y - X["x"] - effect)[2000:] ** 2))
    assert np.sqrt(np.mean((y[2000:] - model.predict(X[2000:])) ** 2)) < 1.15 * best
    few = pd.DataFrame({"x": [0.0, 0.0, 0.0], "group": ["never seen", None, "g0"]})
    predicted = model.predict(few)
    assert np.isfinite(predicted).all()
    assert predicted[0] == predicted[1]  # no value was missing in training, so both have the effect 0
    assert abs(predicted[0] - y.mean()) < 0.3
    gramless.save(model, tmp_path / "model.skops")
    np.testing.assert_array_equal(gramless.load(tmp_path / "model.skops").predict(few), predicted)
    again = model.refit(X[1000:], y[1000:])
    assert np.sqrt(np.mean((y[:1000] - again.predict(X[:1000])) ** 2)) < 1.2 * best


def test_effects_of_classes_are_written_as_onnx():
    onnxruntime = pytest.importorskip("onnxruntime")
    X, y, _ = crossed(590, 110)  # few enough rows for float64
    X.loc[::50, "group"] = None
    model = TableClassifier(random_state=0, time_budget=1).fit(X, np.digitize(y, [-1.0, 1.0]))
    assert model.columns_.effects_[0].shape == (len(model.columns_.levels_[0]) + 2, 3)
    assert len(model.columns_.levels_[0]) > model.columns_.most_levels
    session = onnxruntime.InferenceSession(to_onnx(model).SerializeToString())
    rows = pd.concat([X[:60], pd.DataFrame({"x": [0.1], "group": ["never seen"]})])
    feed = {"x": rows[["x"]].to_numpy(), "group": rows[["group"]].fillna("").to_numpy().astype(object)}
    (chances,) = session.run(["probabilities"], feed)
    np.testing.assert_allclose(chances, model.predict_proba(rows), atol=1e-5)
