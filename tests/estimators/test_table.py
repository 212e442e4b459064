"""Tables through the two estimators: frames of any library, gaps, weights, rare classes, budgets."""

import copy
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.datasets import make_friedman1, make_moons
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import average_precision_score, log_loss
from threadpoolctl import threadpool_limits

import gramless
from gramless import TableClassifier, TableRegressor
from gramless.inference.softmax_link import temperature_losses
from gramless.tables import members, search
from gramless.tables.losses import ClassLoss, ValueLoss
from gramless.tables.search import SearchOptions, SettingSearch
from gramless.tables.tuning import TUNING


@pytest.fixture(scope="module")
def plants():
    rng = np.random.default_rng(0)
    n = 300
    kind = rng.choice(["bush", "tree", "herb"], n)
    height = np.where(kind == "tree", 9.0, np.where(kind == "bush", 2.0, 0.5)) * np.exp(0.3 * rng.normal(size=n))
    leaf = np.where(kind == "tree", "needle", rng.choice(["oval", "lobed"], n)).astype(object)
    leaf[::17] = None
    height[::13] = np.nan
    return pd.DataFrame({"height": height, "leaf": leaf, "noise": rng.normal(size=n)}), kind


@pytest.fixture(scope="module")
def fitted(plants):
    X, y = plants
    return TableClassifier(random_state=0).fit(X[:200], y[:200])


def test_gaps_and_words_are_learnt_from(plants, fitted):
    X, y = plants
    assert fitted.score(X[200:], y[200:]) > 0.9
    P = fitted.predict_proba(X[200:])
    np.testing.assert_allclose(P.sum(axis=1), 1)
    assert log_loss(y[200:], P) < 0.4
    assert fitted.columns_.kinds_ == ["number", "category", "number"]
    assert fitted.summary_
    assert fitted.reductions_ == []


@pytest.mark.parametrize("convert", [pl.from_pandas, pa.Table.from_pandas], ids=["polars", "arrow"])
def test_frames_of_other_libraries_give_the_same(plants, fitted, convert):
    X, y = plants
    again = TableClassifier(random_state=0).fit(convert(X[:200]), y[:200])
    np.testing.assert_allclose(again.predict_proba(convert(X[200:])), fitted.predict_proba(X[200:]), rtol=1e-9)
    with pytest.raises(ValueError, match="feature names should match"):
        again.predict(convert(X.rename(columns={"leaf": "leaves"})))


def test_leave_one_out_probabilities_are_honest(plants, fitted):
    X, y = plants
    codes = np.searchsorted(fitted.classes_, y[:200])
    own = fitted.loo_probabilities_[np.arange(200), codes]
    inside = fitted.predict_proba(X[:200])[np.arange(200), codes]
    assert own.mean() < inside.mean()


def test_files_hold_the_whole_model(plants, fitted, tmp_path):
    X, _ = plants
    gramless.save(fitted, tmp_path / "m.skops")
    again = gramless.load(tmp_path / "m.skops")
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))


def test_values_of_a_smooth_function():
    X, y = make_friedman1(600, random_state=0)
    model = TableRegressor(kernel="matern52", random_state=0).fit(X[:400], y[:400])
    assert model.score(X[400:], y[400:]) > 0.93
    assert 1 - np.mean((model.loo_predictions_ - y[:400]) ** 2) / y[:400].var() > 0.9


def test_a_skewed_target_may_be_fitted_as_its_logarithm():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 3, (400, 2))
    y = np.exp(3 * X[:, 0] + 0.2 * rng.normal(size=400))
    model = TableRegressor(random_state=0).fit(X[:300], y[:300])
    assert any(member.log for member in model.members_)
    assert model.score(X[300:], y[300:]) > 0.9


def test_parts_carry_a_model_where_memory_is_short():
    X, y = make_moons(2400, noise=0.2, random_state=0)
    model = TableClassifier(random_state=0, memory_budget=2 * 8 * 1100**2, kernel="rbf", column_scales="equal").fit(
        X[:2000], y[:2000]
    )
    for member in model.members_:
        assert len(member.points) == 2
        assert sum(map(len, member.points)) == 2000
    assert any("local partitions" in reason for reason in model.reductions_)
    assert model.score(X[2000:], y[2000:]) > 0.95


def test_too_little_memory_for_any_search_is_reported(plants):
    X, y = plants
    with pytest.raises(MemoryError, match="memory_budget allows 10"):
        TableClassifier(memory_budget="10KB").fit(X, y)


def test_the_scale_of_one_column_is_found():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (500, 3))
    y = np.sin(20 * X[:, 0]) + X[:, 1]
    plain = TableRegressor(random_state=0, column_scales="equal").fit(X[:350], y[:350])
    learned = TableRegressor(random_state=0).fit(X[:350], y[:350])
    assert 1 - learned.score(X[350:], y[350:]) < 0.5 * (1 - plain.score(X[350:], y[350:]))


class FewRowsSearched(TableRegressor):
    """A regressor whose time budget is enough to search on 400 rows, and to fit all rows."""

    _tuning = replace(TUNING, operations_per_second=1e9, second_rows=400)


def test_settings_chosen_on_local_subsets_are_better_than_those_of_a_sparse_sample():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (1800, 2))
    y = np.sin(10 * X[:, 0]) * np.sin(10 * X[:, 1]) + 0.05 * rng.normal(size=1800)
    model = FewRowsSearched(random_state=0, kernel="matern52").fit(X[:1600], y[:1600])
    assert any("of 1,600 rows" in reason for reason in model.reductions_)
    assert model.score(X[1600:], y[1600:]) > 0.95
    # A sample of 400 rows is less dense than the table, and selects settings that are worse for the full table.
    finer = np.sin(16 * X[:1600, 0]) * np.sin(16 * X[:1600, 1]) + 0.05 * rng.normal(size=1600)
    encoded, loss = model.columns_.encode(X[:1600]), ValueLoss(finer, "squared_error", None)
    options = SearchOptions(seconds=3.0, kernels=("matern52",), tuning=FewRowsSearched._tuning)

    def new_search(rows):
        return SettingSearch(encoded.take(rows), rows, prepared, loss, options)

    prepared = members.fit_scalings(encoded, SearchOptions())
    sample, full = new_search(np.arange(400)), new_search(np.arange(1600))
    found, full.spread = sample.run(), sample.spread
    local_subset = search.local_rows(X[:1600], np.arange(400), np.ones(400), options, 400, np.random.RandomState(0))
    local, sparse = (new_search(rows).run_local(found, sample.spread)[0] for rows in (local_subset, np.arange(400)))
    assert full.evaluate(local.setting, 1600).loss < full.evaluate(sparse.setting, 1600).loss


def test_weights_of_zero_are_rows_that_are_not_there(plants):
    X, y = plants
    weights = np.ones(200)
    weights[150:] = 0
    short = TableClassifier(random_state=0, kernel="rbf", column_scales="equal")
    weighted = clone(short).fit(X[:200], y[:200], weights)
    without = clone(short).fit(X[:150], y[:150])
    np.testing.assert_allclose(weighted.predict_proba(X[200:]), without.predict_proba(X[200:]), rtol=1e-6, atol=1e-9)


def test_a_class_with_one_row_is_no_obstacle():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(61, 2)) + 3 * (np.arange(61) % 2)[:, None]
    y = np.array(["x", "y"])[np.arange(61) % 2].astype(object)
    y[60] = "z"
    model = TableClassifier(random_state=0).fit(X, y)
    assert model.predict_proba(X).shape == (61, 3)


def test_the_search_and_the_partitions_follow_counted_operations():
    assert search.rows_within(1.0, 10) == int((1.5 * TUNING.operations_per_second / 10) ** (1 / 3))
    n = 100_000
    size = members.part_size(n, 1, 20.0, 1 << 40)
    assert 2 / 3 * n * size**2 <= 20.0 * TUNING.single_operations_per_second
    assert members.part_size(500, 1, 20.0, 1 << 40) == 500


class SmallPartitions(TableRegressor):
    """A regressor that fits partitions of 60 rows."""

    _tuning = replace(TUNING, first_rows=100, operations_per_second=1.0, single_operations_per_second=1.0, smallest_part=60)


def test_the_model_is_equal_for_any_number_of_threads():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = np.sin(X[:, 0]) + X[:, 1]
    fits = []
    for threads in (1, 3):
        messages: list[str] = []
        estimator = SmallPartitions(kernel="rbf", column_scales="equal", random_state=0)
        estimator.set_params(callback=lambda _, record, messages=messages: messages.append(record["message"]))
        with threadpool_limits(threads):
            fits.append(estimator.fit(X, y))
        assert len(fits[-1].members_[0].points) == 5
        assert "fitting the rbf kernel to 300 rows: 5 of 5 local partitions" in messages
    np.testing.assert_array_equal(fits[0].predict(X), fits[1].predict(X))
    np.testing.assert_array_equal(fits[0].loo_predictions_, fits[1].loo_predictions_)


def test_partitions_are_solved_in_parallel_as_threads_and_memory_allow():
    with threadpool_limits(3):
        assert members.parts_at_once(5, 1000, 1 << 40) == 3
        assert members.parts_at_once(5, 1000, 2 * 2 * 8 * 1000**2) == 2
        assert members.parts_at_once(5, 1000, 0) == 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kernel": "cubic"}, "kernel"),
        ({"estimator": "tree"}, "estimator"),
        ({"kernel": "linear", "gamma": 1.0}, "the linear kernel has no gamma"),
        ({"estimator": "table", "C": 1.0}, "selects C and gamma itself"),
        ({"column_scales": "best"}, "column_scales"),
        ({"time_budget": 0}, "time_budget"),
        ({"text": "keep"}, "text"),
    ],
)
def test_settings_that_are_not_known_are_reported(plants, settings, words):
    X, y = plants
    with pytest.raises(ValueError, match=words):
        TableClassifier(**settings).fit(X, y)


def test_targets_that_are_too_large_are_reported():
    X = np.random.default_rng(0).normal(size=(30, 1))
    with pytest.raises(ValueError, match="y has numbers that are too large"):
        TableRegressor().fit(X, 1e200 * X[:, 0])


def test_infinite_numbers_are_refused():
    X = np.array([[1.0], [np.inf], [2.0]])
    with pytest.raises(ValueError, match="infinity"):
        TableRegressor().fit(X, [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="infinity"):
        TableRegressor().fit(pd.DataFrame(X), [1.0, 2.0, 3.0])


def test_the_callback_is_called_with_the_estimator_and_a_record(plants):
    X, y = plants
    calls = []

    def callback(estimator, record):
        calls.append((estimator, record["stage"], record["message"]))

    model = TableClassifier(random_state=0, kernel="rbf", column_scales="equal", callback=callback).fit(X, y)
    assert all(estimator is model for estimator, _, _ in calls)
    assert list(dict.fromkeys(stage for _, stage, _ in calls)) == ["columns", "search", "fit"]
    assert any("evaluating every scaling" in message for _, _, message in calls)
    assert set(model.timings_) == {"tune", "fit"}


def test_the_callback_can_end_the_search(plants):
    X, y = plants
    counts = []
    for stops in (False, True):
        calls = []
        model = TableClassifier(
            random_state=0, callback=lambda _, record, calls=calls, stops=stops: calls.append(record) or stops
        ).fit(X[:200], y[:200])
        counts.append(len(calls))
        assert model.score(X[200:], y[200:]) > 0.8
    assert counts[1] < counts[0] / 3


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"C": 3.0}, "LSSVC"),
        ({"gamma": 0.2, "kernel": "laplacian"}, "LSSVC"),
        ({"estimator": "nystrom"}, "NystromLSSVC"),
        ({"estimator": "svm"}, "KernelSVC"),
        ({"kernel": "linear"}, "LSSVC"),
        ({"kernel": "poly", "C": 1.0}, "LSSVC"),
        ({"tune": "none"}, "LSSVC"),
        ({"gamma": "scale", "C": 1.0}, "LSSVC"),
    ],
    ids=str,
)
def test_explicit_settings_give_a_single_model(plants, tmp_path, settings, expected):
    X, y = plants
    model = TableClassifier(random_state=0, **settings).fit(X[:200], y[:200])
    assert type(model.model_).__name__ == expected
    # Without interactions (linear), or with default settings (tune="none"), a model is less accurate than a tuned one.
    least = 0.6 if settings.get("kernel") in ("linear", "poly") else 0.85
    assert model.score(X[200:], y[200:]) > least
    for name in ("C", "gamma"):
        if isinstance(settings.get(name), float):
            assert getattr(model.model_, name) == settings[name]
    assert hasattr(model, "predict_proba") == (expected != "KernelSVC")
    gramless.save(model, tmp_path / "m.skops")
    np.testing.assert_array_equal(gramless.load(tmp_path / "m.skops").predict(X), model.predict(X))


def test_a_single_model_finds_the_width_of_the_data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (600, 1))
    fine, flat = (TableRegressor(estimator="lssvm", random_state=0).fit(X, y) for y in (np.sin(25 * X[:, 0]), X[:, 0]))
    assert fine.model_.gamma > flat.model_.gamma
    assert fine.score(X, np.sin(25 * X[:, 0])) > 0.999
    assert fine.predict_interval(X[:3]).shape == (3, 2)


def test_a_rare_class_is_in_the_sample_of_the_search():
    y = np.zeros(1000, dtype=int)
    y[np.random.RandomState(0).permutation(1000)[-3:]] = 1
    order = members.sample_order(1000, y, 100, np.random.RandomState(0))
    assert sorted(order) == list(range(1000))
    assert y[order[:100]].sum() == 2


def test_the_size_of_the_table_decides_between_exact_and_nystrom_models():
    model = TableClassifier(C=1.0)
    assert model._resolve(5000)[0] == "lssvm"
    assert model._resolve(500_000)[0] == "nystrom"
    assert TableClassifier(kernel="rbf")._resolve(500_000)[0] == "table"


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error"])
def test_a_model_of_logarithms_is_refitted_to_positive_targets(loss):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=120)})
    y = np.exp(X["a"] + 0.1 * rng.normal(size=120))
    model = TableRegressor(random_state=0, loss=loss).fit(X, y)
    assert any(member.log for member in model.members_)
    even = 2 + np.tanh(X["a"])  # not skewed
    assert np.abs(model.refit(X, even).predict(X) - even).max() < 0.3
    with pytest.raises(ValueError, match="the logarithm of the target, and y has the value 0"):
        model.refit(X, np.where(np.arange(120) == 0, 0.0, y))


def test_refit_of_a_copy_does_not_change_the_fitted_effects_of_the_original():
    rng = np.random.default_rng(0)
    word, effect = rng.integers(0, 40, 600), 3 * rng.normal(size=40)
    X = pd.DataFrame({"word": [f"w{k}" for k in word], "x": rng.normal(size=600)})
    y = (effect[word] + X["x"] + rng.normal(size=600)).to_numpy() > 0
    model = TableClassifier(random_state=0, time_budget=1).fit(X[:400], y[:400])
    assert model.columns_.effects_[0].size
    expected = model.predict_proba(X)
    copy.copy(model).refit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), expected)


@pytest.mark.parametrize("estimator", ["table", "lssvm", "nystrom"])
@pytest.mark.parametrize("cls", [TableClassifier, TableRegressor])
def test_refit_uses_the_settings_of_the_fit(cls, estimator):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=200), "b": rng.normal(size=200), "c": rng.choice(["x", "y"], 200)})
    y = X["a"] + 0.1 * rng.normal(size=200)
    y = y if cls is TableRegressor else y > 0
    model = cls(estimator=estimator, time_budget=0.5, random_state=0).fit(X[:150], y[:150])
    expected, settings = model.predict(X[150:]), model.summary_
    model.refit(X[:150], y[:150])
    if cls is TableRegressor:
        np.testing.assert_allclose(model.predict(X[150:]), expected, rtol=1e-6, atol=1e-6)
    else:
        np.testing.assert_array_equal(model.predict(X[150:]), expected)
    train_error = np.mean(model.predict(X[150:]) != y[150:])
    model.refit(X, y)
    assert model.summary_ == settings
    assert model.timings_["tune"] == 0.0
    assert np.mean(model.predict(X[150:]) != y[150:]) <= train_error
    if cls is TableClassifier:
        with pytest.raises(ValueError, match="and the settings were selected for"):
            model.refit(X, np.where(y, "yes", "no"))
        np.testing.assert_array_equal(model.classes_, [False, True])


@pytest.mark.parametrize("kind", ["classes", "values"])
def test_the_search_does_not_depend_on_threads_or_load(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=1200)
    estimator = TableClassifier(random_state=0) if kind == "classes" else TableRegressor(random_state=0)
    fits = []
    for threads, delay in ((1, 0.0), (2, 0.03)):
        with threadpool_limits(threads):
            # Sleeping after every evaluation makes the fit as slow as a loaded computer would.
            estimator.set_params(callback=lambda *_, delay=delay: time.sleep(delay))
            model = clone(estimator).fit(X, y > 0 if kind == "classes" else y)
        fits.append(model)
        assert model.stopped_at_ is None
    assert fits[0].summary_ == fits[1].summary_
    for one, other in zip(fits[0].members_, fits[1].members_, strict=True):
        np.testing.assert_array_equal(one.coefs[0], other.coefs[0])


def test_a_time_budget_that_is_used_up_stops_the_search_and_says_where(capsys):
    X, y = make_friedman1(600, random_state=0)
    slow = TableRegressor(time_budget=0.5, random_state=0, verbose=1, callback=lambda *_: time.sleep(0.2))
    model = slow.fit(X, y)
    assert "settings" in model.stopped_at_
    assert f"stopped at: {model.stopped_at_}" in capsys.readouterr().err
    assert model.score(X, y) > 0.5


@pytest.fixture(scope="module")
def outliers():
    """A table, targets of which one percent are a thousand times too large, and the correct targets."""
    rng = np.random.default_rng(0)
    n = 600
    X = pd.DataFrame({"size": rng.uniform(20, 200, n), "age": rng.uniform(0, 80, n), "city": rng.choice(list("abcd"), n)})
    y = 10 * np.sin(X["size"] / 40) - 0.1 * X["age"] + X["city"].map({"a": 0, "b": 3, "c": -2, "d": 5}) + rng.normal(size=n)
    wrong = y.to_numpy().copy()
    wrong[rng.permutation(n)[: n // 100]] *= 1000
    return X, wrong, y.to_numpy()


@pytest.mark.parametrize("loss", ["absolute_error", "huber"])
@pytest.mark.parametrize("estimator", ["table", "lssvm"])
def test_robust_losses_ignore_wrong_targets(outliers, loss, estimator):
    X, wrong, y = outliers
    model = TableRegressor(loss=loss, estimator=estimator, random_state=0).fit(X[:450], wrong[:450])
    assert np.abs(model.predict(X[450:]) - y[450:]).mean() < 1.5  # the noise alone has 0.8


def test_extreme_targets_are_reported_and_fitted_by_hubers_loss(outliers):
    X, wrong, y = outliers
    with pytest.warns(UserWarning, match="targets are extreme .* the Huber loss is fitted"):
        model = TableRegressor(random_state=0).fit(X[:450], wrong[:450])
    assert model.loss_ == "huber"
    assert np.abs(model.predict(X[450:]) - y[450:]).mean() < 1.5
    with pytest.warns(UserWarning, match="choose the loss 'huber' or 'absolute_error'"):
        TableRegressor(loss="squared_error", kernel="rbf", column_scales="equal").fit(X[:450], wrong[:450])
    assert TableRegressor(kernel="rbf", column_scales="equal").fit(X[:450], y[:450]).loss_ == "squared_error"


@pytest.mark.parametrize("metric", ["log_loss", "accuracy", "average_precision"])
def test_settings_are_compared_by_the_metric(metric):
    codes, scores = np.array([0, 0, 1, 1]), np.array([[-0.9], [0.4], [0.2], [0.8]])
    loss = ClassLoss(codes, 2, None, metric)
    expected = {
        "log_loss": temperature_losses(scores, codes).mean(),
        "accuracy": 0.25,
        "average_precision": 1 - (average_precision_score(codes, scores) + average_precision_score(1 - codes, -scores)) / 2,
    }
    assert loss(scores, np.arange(4)) == pytest.approx(expected[metric])
    X, y = make_moons(200, noise=0.2, random_state=0)
    model = TableClassifier(metric=metric, kernel="rbf", column_scales="equal", random_state=0).fit(X, y)
    assert model.score(X, y) > 0.9


def test_columns_that_are_not_used_raise_one_warning_and_one_line(capsys):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=60), "constant": 1, "number": np.arange(60), "id": 1000 + 2 * np.arange(60)})
    y = X["x"] + rng.normal(size=60) > 0
    estimator = TableClassifier(kernel="rbf", column_scales="equal", random_state=0, verbose=1)
    with pytest.warns(
        UserWarning, match=r"'constant' \(the same value everywhere\), 'number' \(row numbers\).*'id'"
    ) as found:
        model = estimator.fit(X, y)
    assert len(found) == 1
    assert capsys.readouterr().err == "[gramless] columns: 2 number, 2 left out\n"
    assert repr(model.columns_).splitlines()[2].split() == [
        "constant",
        "left",
        "out",
        "0",
        "the",
        "same",
        "value",
        "everywhere",
    ]


def test_a_table_without_usable_columns_is_reported():
    X = pd.DataFrame({"country": ["ch"] * 30, "id": np.arange(30)})
    with pytest.raises(
        ValueError, match="no column of X can be used: 'country': the same value everywhere; 'id': row numbers"
    ):
        TableClassifier().fit(X, np.arange(30) % 2)


@pytest.mark.parametrize("cls", [TableRegressor, TableClassifier])
def test_the_fast_preset_evaluates_a_fraction_of_the_settings(cls):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 4))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * rng.normal(size=700)
    y = y if cls is TableRegressor else y > 0

    def fit(preset):
        messages = []
        model = cls(random_state=0, preset=preset, callback=lambda _, record: messages.append(record["message"]))
        score = model.fit(X[:500], y[:500]).score(X[500:], y[500:])
        return len(messages), score

    (steps, _), (fast_steps, score) = fit("default"), fit("fast")
    assert fast_steps < 0.6 * steps
    trees = HistGradientBoostingRegressor if cls is TableRegressor else HistGradientBoostingClassifier
    assert score > trees(random_state=0).fit(X[:500], y[:500]).score(X[500:], y[500:])
    with pytest.raises(ValueError, match="preset"):
        cls(preset="slow").fit(X, y)
