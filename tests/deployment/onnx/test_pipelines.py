"""Pipelines and table models as ONNX operators: predictions in onnxruntime equal those in Python."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from scipy.special import ndtri
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_selection import SelectKBest, VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

import gramless
from gramless import LSSVC, LSSVR, TableClassifier, TableRegressor, to_onnx
from gramless.deployment.onnx.graph import Graph
from gramless.deployment.onnx.tables import _year_start
from gramless.deployment.onnx.transformers import TRANSFORMER_GRAPHS, normal_quantile
from gramless.tables.tuning import TUNING


def run(model, inputs):
    session = onnxruntime.InferenceSession(to_onnx(model).SerializeToString())
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def data(n=150):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5)) * [1, 10, 0.1, 1, 1] + [0, 100, 0, 0, 0]
    X[:, 3] = rng.integers(0, 3, n)
    X[:, 4] = np.where(rng.random(n) < 0.4, 0.0, np.exp(X[:, 4]))
    return X, np.where(X[:, 0] + X[:, 3] > 1, "yes", "no")


STEPS = {
    StandardScaler: [StandardScaler(), StandardScaler(with_mean=False), StandardScaler(with_std=False)],
    RobustScaler: [RobustScaler()],
    MinMaxScaler: [MinMaxScaler(), MinMaxScaler((-1, 1), clip=True)],
    MaxAbsScaler: [MaxAbsScaler()],
    Normalizer: [Normalizer(norm) for norm in ("l1", "l2", "max")],
    PCA: [PCA(3), PCA(2, whiten=True)],
    VarianceThreshold: [VarianceThreshold(0.5)],
    SelectKBest: [SelectKBest(k=2)],
    PolynomialFeatures: [PolynomialFeatures(2, include_bias=False)],
    TruncatedSVD: [TruncatedSVD(2, random_state=0)],
    SimpleImputer: [SimpleImputer(), SimpleImputer(strategy="constant", fill_value=-1.0)],
    OneHotEncoder: [OneHotEncoder(handle_unknown="ignore", max_categories=2, sparse_output=False)],
    QuantileTransformer: [
        QuantileTransformer(n_quantiles=50),
        QuantileTransformer(n_quantiles=150, output_distribution="normal"),
    ],
}
CASES = [step for steps in STEPS.values() for step in steps]


@pytest.mark.parametrize("step", CASES, ids=str)
def test_pipeline_with_transformer(step):
    X, y = data()
    others = 1.3 * X[::-1] - 0.2
    if isinstance(step, OneHotEncoder):
        X, others = X[:, 3:4], X[:, 3:4]
    if isinstance(step, SimpleImputer):
        X[::7, 1] = others[::5, 2] = np.nan
    model = make_pipeline(step, StandardScaler(), LSSVC(probability="softmax")).fit(X, y)
    for rows in (X, others):
        found = run(model, {"X": rows})
        np.testing.assert_allclose(found["scores"][:, 0], model.decision_function(rows), atol=1e-5)
        np.testing.assert_allclose(found["probabilities"], model.predict_proba(rows), atol=1e-5)
        assert np.mean(found["label"] == model.predict(rows)) > 0.99


def test_every_registered_transformer_is_tested():
    assert set(TRANSFORMER_GRAPHS) <= set(STEPS)


def test_float32_estimator_in_pipeline():
    X, _ = data()
    X = X.astype(np.float32)
    model = make_pipeline(StandardScaler(), LSSVR(dtype="float32")).fit(X, X[:, 0])
    found = run(model, {"X": X.astype(np.float64)})["prediction"]
    np.testing.assert_allclose(found, model.predict(X), atol=1e-4)


def test_unsupported_transformer_error_has_its_name():
    X, y = data()
    model = make_pipeline(FunctionTransformer(np.log1p), LSSVC()).fit(np.abs(X), y)
    with pytest.raises(ValueError, match="FunctionTransformer cannot be written as ONNX operators"):
        to_onnx(model)


def frame(n=200, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "size": rng.normal(size=n),
            "price": np.exp(2 * rng.normal(size=n)),
            "city": rng.choice(["Bern", "Genf", "Zug", "Ägeri"], n),
            "new": rng.random(n) < 0.5,
            "sold": pd.Timestamp("1967-05-03") + pd.to_timedelta(rng.integers(0, 30_000, n) * 24 + 7, unit="h"),
        }
    )
    table.loc[rng.random(n) < 0.1, "size"] = np.nan
    table.loc[rng.random(n) < 0.1, "city"] = None
    table.loc[rng.random(n) < 0.05, "sold"] = pd.NaT
    signal = table["size"].fillna(0) + (table["city"] == "Bern") + np.log(table["price"]) / 2
    return table, signal.to_numpy()


def inputs_of(table):
    """Return the columns as inputs of a graph."""
    found = {}
    for name, column in table.items():
        if column.dtype.kind == "M":
            days = (column - pd.Timestamp(0)) / pd.Timedelta(days=1)
            found[name] = days.to_numpy(dtype=np.float64)[:, None]
        elif column.dtype.kind == "b":  # booleans are categories
            found[name] = column.astype(str).to_numpy(dtype=object)[:, None]
        elif column.dtype.kind in "if":
            found[name] = column.to_numpy(dtype=np.float64)[:, None]
        else:
            found[name] = column.astype(object).where(column.notna(), "").to_numpy(dtype=object)[:, None]
    return found


PARTITIONS_OF_60_ROWS = replace(
    TUNING, first_rows=100, operations_per_second=1.0, single_operations_per_second=1.0, smallest_part=60
)


@pytest.fixture(scope="module")
def tables():
    """Return fitted table models, including one with a logarithmic target and one with partitions."""
    table, signal = frame()
    y = np.array(["low", "mid", "high"])[np.digitize(signal, [-0.3, 1.0])]
    options = {"time_budget": 0.3, "random_state": 0}
    found = {
        "classes": TableClassifier(**options).fit(table, y),
        "two classes": TableClassifier(**options).fit(table, y == "low"),
        "values": TableRegressor(**options).fit(table, signal),
        "logarithms": TableRegressor(**options).fit(table, np.exp(signal)),
    }
    assert any(member.log for member in found["logarithms"].members_)
    in_partitions = TableClassifier(**options)
    in_partitions._tuning = PARTITIONS_OF_60_ROWS
    found["partitions"] = in_partitions.fit(table, y)
    assert found["partitions"].members_[0].partition is not None
    return found


@pytest.mark.parametrize("name", ["classes", "two classes", "values", "logarithms", "partitions"])
def test_table_model(tables, name):
    model = tables[name]
    for seed in (0, 1):
        table, _ = frame(seed=seed)
        if seed:
            table.loc[:5, "city"] = "Chur"  # an unseen category
        check_table(model, table)


def test_predicted_logarithms_are_clipped_to_the_range_of_the_targets(tables):
    import copy

    table, signal = frame()
    y = np.exp(signal)
    model = copy.deepcopy(tables["logarithms"])
    member = next(member for member in model.members_ if member.log)
    model.members_, model.member_weights_ = [member], np.ones(1)
    # Scores far out of the range of the training targets.
    member.coefs, member.biases = [20 * coef for coef in member.coefs], [20 * bias for bias in member.biases]
    member.factor, member.powers = 1.5, (0.9, 0.05)
    check_table(model, table)
    values = model.predict(table)
    assert y.min() <= values.min() < 0.1 * np.median(y)
    np.testing.assert_allclose(values.max(), y.max())


@pytest.mark.parametrize("scaling", ["standard", "quantile", "log"])
def test_every_scaling(tables, scaling):
    """Replace the scaling of the selected member by each available scaling."""
    import copy

    from gramless.tables.preparation import Preparation

    table, _ = frame()
    model = copy.deepcopy(tables["classes"])
    encoded = model.columns_.encode(table)
    member = model.members_[0]
    member.preparation = Preparation(scaling, member.preparation.n_levels, 0).fit(encoded)
    check_table(model, frame(seed=3)[0])


def test_columns_with_names_of_operators_and_outputs():
    table, signal = frame()
    names = [f"{operator}_{number}" for operator in ("constant", "isnan", "where", "sub") for number in range(1, 9)]
    renamed = pd.DataFrame(dict.fromkeys(names, table["size"]))
    model = TableRegressor(C=1.0, gamma=0.1)
    check_table(model.fit(renamed, signal), renamed)
    with pytest.raises(ValueError, match="a column has the name 'prediction' of an output"):
        to_onnx(model.fit(table[["size"]].rename(columns={"size": "prediction"}), signal))


def check_table(model, table):
    found = run(model, inputs_of(table))
    if hasattr(model, "classes_"):
        np.testing.assert_allclose(found["probabilities"], model.predict_proba(table), atol=1e-5)
        scores = model.decision_function(table)
        np.testing.assert_allclose(found["scores"].reshape(scores.shape), scores, atol=1e-4)
        assert np.mean(found["label"] == model.predict(table)) > 0.99
    else:
        np.testing.assert_allclose(found["prediction"], model.predict(table), rtol=1e-5, atol=1e-5)


def test_model_saved_by_train(tmp_path):
    from rich.console import Console

    from gramless.cli.options import TrainSettings
    from gramless.cli.train import train

    table, signal = frame()
    table = table.drop(columns=["sold", "new"])
    table.assign(y=signal).to_csv(tmp_path / "t.csv", index=False)
    train(TrainSettings(tmp_path / "t.csv", "y", tmp_path / "m.skops", estimator="lssvm", tune="none"), Console(quiet=True))
    model = gramless.load(tmp_path / "m.skops")
    found = run(model, inputs_of(table))["prediction"]
    np.testing.assert_allclose(found, model.predict(table), atol=1e-5)


def test_column_transformer_with_infrequent_categories():
    table, signal = frame()
    words = make_pipeline(SimpleImputer(strategy="constant", fill_value="missing"), OneHotEncoder(max_categories=3))
    parts = ColumnTransformer([("n", SimpleImputer(), ["size"]), ("w", words, ["city"]), ("p", "passthrough", ["price"])])
    columns = table[["size", "city", "price"]].copy()
    columns["city"] = columns["city"].astype(object).where(columns["city"].notna(), np.nan)
    model = make_pipeline(parts, StandardScaler(with_mean=False), LSSVC()).fit(columns, signal > 0)
    found = run(model, inputs_of(columns))["scores"]
    np.testing.assert_allclose(found[:, 0], model.decision_function(columns), atol=1e-5)


def graph_values(build, x, dtype=np.float64):
    graph = Graph(np.float64)
    graph.output("y", build(graph.input("x", dtype, ["n"])), dtype, ["n"])
    return onnxruntime.InferenceSession(graph.model("values").SerializeToString()).run(None, {"x": x})[0]


def test_normal_quantile_to_rounding_error():
    p = np.concatenate([np.linspace(1e-7, 1 - 1e-7, 5001), [0.075, 0.925, 0.5, 1e-4]])
    np.testing.assert_allclose(graph_values(normal_quantile, p), ndtri(p), rtol=1e-13, atol=1e-13)


def test_year_start():
    days = np.arange(-200_000, 200_000, 7)
    starts = days.astype("datetime64[D]").astype("datetime64[Y]").astype("datetime64[D]").astype(np.int64)
    np.testing.assert_array_equal(graph_values(_year_start, days, np.int64), starts)
