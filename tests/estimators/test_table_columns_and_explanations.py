"""Columns by name, several outputs, and explanations of the table estimators."""

from itertools import combinations
from math import factorial

import numpy as np
import pandas as pd
import pytest
from sklearn.inspection import PartialDependenceDisplay

import gramless
from gramless import TableClassifier, TableRegressor
from gramless.tables.attributions import shapley_values
from gramless.tables.column_types import Encoded

QUICK = {"tune": "none", "random_state": 0}


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    n = 150
    return pd.DataFrame(
        {
            "x": rng.normal(size=n),
            "city": rng.choice(["Bern", "Genf"], n),
            "day": pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 700, n), unit="D"),
            "id": np.arange(n),
        }
    )


@pytest.fixture(scope="module")
def values(frame):
    return frame["x"] + 2.0 * (frame["city"] == "Bern") + 0.1 * np.random.default_rng(1).normal(size=len(frame))


@pytest.fixture(scope="module")
def regressor(frame, values):
    return TableRegressor(**QUICK).fit(frame, values)


@pytest.fixture(scope="module")
def classifier(frame, values):
    return TableClassifier(**QUICK).fit(frame, np.digitize(values, [0, 2]))


def test_columns_are_taken_by_name(frame, regressor):
    expected = regressor.predict(frame)
    np.testing.assert_array_equal(regressor.predict(frame[["day", "city", "id", "x"]]), expected)
    np.testing.assert_array_equal(regressor.predict(frame.drop(columns="id")), expected)  # a column that is not used
    with pytest.warns(UserWarning, match="fit did not have, which are not used: 'colour'"):
        np.testing.assert_array_equal(regressor.predict(frame.assign(colour="red")), expected)


def test_columns_that_cannot_be_taken_are_reported(frame, values, regressor):
    with pytest.raises(ValueError, match=r"yet now missing:\n- x\n"):
        regressor.predict(frame.drop(columns="x"))
    twice = pd.concat([frame, frame[["x"]]], axis=1)
    with pytest.raises(ValueError, match="several columns with the name 'x'"):
        regressor.predict(twice)
    with pytest.raises(ValueError, match="several columns with the name 'x'"):
        TableRegressor(**QUICK).fit(twice, values)


def test_only_categories_or_no_usable_column(frame, values):
    y = values > values.mean()
    model = TableClassifier(random_state=0).fit(frame[["city", "id"]], y)
    assert model.score(frame[["city", "id"]], y) > 0.6
    with pytest.raises(ValueError, match="no column of X can be used: 'id': row numbers"):
        TableClassifier().fit(frame[["id"]], y)


def test_dates_given_as_text_at_prediction(frame, regressor):
    texts = frame.assign(day=frame["day"].dt.strftime("%Y-%m-%d"))
    np.testing.assert_array_equal(regressor.predict(texts), regressor.predict(frame))
    with pytest.raises(ValueError, match="row 3, column 'day': 'soon' is not a date"):
        regressor.predict(texts.assign(day=["soon" if k == 2 else day for k, day in enumerate(texts["day"])]))


@pytest.mark.parametrize("d", [3, 8])
def test_shapley_values_of_a_function_with_an_interaction(d):
    """A few columns are exact; with more, the true values lie within the error bars."""
    rng = np.random.RandomState(0)
    rows, background = rng.normal(size=(2, d)), rng.normal(size=(60, d))
    weights = np.arange(1.0, d + 1)

    def f(numbers):
        return numbers @ weights + 3 * numbers[:, 0] * numbers[:, 1]

    def value(row, members):
        mixed = background.copy()
        mixed[:, list(members)] = row[list(members)]
        return f(mixed).mean()

    def exact(row, j):
        others = [k for k in range(d) if k != j]
        return sum(
            factorial(s) * factorial(d - s - 1) / factorial(d) * (value(row, (*S, j)) - value(row, S))
            for s in range(d)
            for S in combinations(others, s)
        )

    def encoded(numbers):
        return Encoded(numbers, np.empty((len(numbers), 0), np.int32))

    places = {str(k): (np.array([k]), np.empty(0, int)) for k in range(d)}
    found = shapley_values(lambda e: f(e.numbers), encoded(rows), encoded(background), places, 60, rng)
    truth = np.array([[exact(row, j) for j in range(d)] for row in rows])
    np.testing.assert_allclose(found.base + found.values.sum(axis=1), f(rows))
    if d == 3:
        np.testing.assert_allclose(found.values, truth)
    else:
        assert (np.abs(found.values - truth) <= 4 * found.errors + 1e-9).all()
        assert 0 < found.errors.max() < 0.2 * weights.sum()


def test_explanations_add_up_to_the_predictions(frame, values, regressor, classifier):
    rows = frame[:6]
    found = regressor.explain(rows, random_state=0)
    assert found.names == ["x", "city", "day"]
    np.testing.assert_allclose(found.base + found.values.sum(axis=1), regressor.predict(rows))
    many = classifier.explain(rows, n_samples=16, random_state=0)
    assert many.values.shape == many.errors.shape == (6, 3, 3)
    np.testing.assert_allclose(many.base + many.values.sum(axis=1), classifier.predict_proba(rows))
    two = TableClassifier(**QUICK).fit(frame, values > 1).explain(rows, random_state=0)
    assert two.values.shape == (6, 3)
    assert np.corrcoef(found.values[:, 0], rows["x"])[0, 1] > 0.95
    with pytest.raises(ValueError, match="n_samples must be at least 2"):
        regressor.explain(rows, n_samples=1)


def test_importances_and_names_of_features(frame, regressor, tmp_path):
    importances = regressor.feature_importances_
    assert importances.shape == (4,)
    assert importances.sum() == pytest.approx(1)
    assert importances[:2].min() > 5 * importances[2]
    assert importances[3] == 0
    names = regressor.get_feature_names_out()
    assert list(names[:3]) == ["x", "day days", "day sin year"]
    assert list(names[-2:]) == ["city=Bern", "city=Genf"]
    assert len(names) == regressor.model_.n_features_in_
    gramless.save(regressor, tmp_path / "m.skops")
    np.testing.assert_array_equal(gramless.load(tmp_path / "m.skops").feature_importances_, importances)


def test_partial_dependence_of_scikit_learn(frame, regressor):
    shown = PartialDependenceDisplay.from_estimator(regressor, frame[:40], ["x", "city"], categorical_features=["city"])
    assert [axes.get_xlabel() for axes in shown.axes_.ravel()] == ["x", "city"]
    assert np.ptp(shown.pd_results[1]["average"]) == pytest.approx(2, rel=0.3)


def test_several_outputs(frame, values, regressor):
    both = np.column_stack([values, frame["x"]])
    model = TableRegressor(**QUICK).fit(frame, both)
    assert model.predict(frame).shape == both.shape
    np.testing.assert_allclose(model.predict(frame)[:, 0], regressor.predict(frame))
    assert model.score(frame, both) > 0.9
    assert [one.shape for one in model.predict_interval(frame)] == [(150, 2)] * 2
    labels = pd.DataFrame({"big": values > 1, "city": frame["city"]})
    classifier = TableClassifier(**QUICK).fit(frame, labels)
    assert classifier.predict(frame).shape == (150, 2)
    assert [list(one) for one in classifier.classes_] == [[False, True], ["Bern", "Genf"]]
    assert [one.shape for one in classifier.predict_proba(frame)] == [(150, 2)] * 2
    assert classifier.feature_importances_.shape == (4,)
    with pytest.raises(ValueError, match="for each estimator of outputs_"):
        classifier.refit(frame, labels)
    assert TableRegressor(**QUICK).fit(frame, values).outputs_ == []
