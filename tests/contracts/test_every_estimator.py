"""Properties of every public estimator; exported estimators are tested automatically."""

import inspect
import os
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator

import gramless

CLASSES = [getattr(gramless, name) for name in sorted(gramless._EXPORTS) if inspect.isclass(getattr(gramless, name))]
# Estimators of images cannot process the tables of scikit-learn's checks and have separate tests.
ESTIMATORS = [
    made.__name__ for made in CLASSES if issubclass(made, BaseEstimator) and get_tags(made()).input_tags.two_d_array
]

_LEAVES_OUT_BOTH_COPIES = (
    "leave-one-out leaves out a row of weight 2 whole, as it leaves out one of two copies of a row alone: the criterion "
    "that chooses C is another one, as for every cross-validated estimator whose folds are rows"
)
_STEPS_ON_BATCHES = (
    "a row of weight 2 is one row in one mini-batch, two copies are two rows in two batches: the steps differ, as for every "
    "estimator that learns by stochastic gradients"
)
_WIDTH_OF_ROWS = (
    "gamma='scale' is scikit-learn's: the variance of the rows, whatever their weights, as in its SVC and SVR; with a "
    "number as gamma a weight is a repetition, which the tests of these estimators check"
)
_ON_THE_BOUNDARY = "rows on the boundary have a decision of zero but for rounding, whose sign is the prediction"
EXPECTED_TO_FAIL = {
    "MKLClassifier": {"check_sample_weight_equivalence_on_dense_data": _WIDTH_OF_ROWS},
    **{
        name: {
            "check_sample_weight_equivalence_on_dense_data": _STEPS_ON_BATCHES,
            "check_sample_weight_equivalence_on_sparse_data": _STEPS_ON_BATCHES,
        }
        for name in ("BudgetLSSVC", "BudgetLSSVR")
    },
    "SphericalKMeans": {
        # As for scikit-learn's KMeans; weights as copies are tested from a given start.
        "check_sample_weight_equivalence_on_dense_data": "the random start sees other points",
    },
    **{
        name: {"check_sample_weight_equivalence_on_dense_data": _LEAVES_OUT_BOTH_COPIES}
        for name in ("TableClassifier", "TableRegressor")
    },
    # As for scikit-learn's; decisions of weighted and repeated rows are compared in the tests of the estimator.
    "KernelOneClassSVM": {
        "check_sample_weight_equivalence_on_dense_data": _ON_THE_BOUNDARY,
        "check_sample_weight_equivalence_on_sparse_data": _ON_THE_BOUNDARY,
    },
}


NEEDS_ARRAY_API = ["check_array_api_input"]


def checks(name: str) -> list[dict]:
    estimator = getattr(gramless, name)()
    if "tol" in estimator.get_params():
        estimator.set_params(tol=1e-11)  # the checks compare to seven digits: iterations must go that far
    if "n_landmarks" in estimator.get_params():
        estimator.set_params(n_landmarks=50)  # most checks have fewer rows; those that have more are not about landmarks
    if name.startswith("Table"):
        estimator.set_params(
            kernel="rbf", column_scales="equal"
        )  # one of the kernels that the search tries, for dozens of fits
    # A check puts copies of rows in the place of weights. The width of scikit-learn's "scale" does not count the weights, as
    # in its SVC; the checks are for the rest of the estimator.
    if "gamma" in estimator.get_params() and not name.startswith("Table"):
        estimator.set_params(gamma="weighted_scale")
    return check_estimator(estimator, expected_failed_checks=EXPECTED_TO_FAIL.get(name, {}), on_fail=None, on_skip=None)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_passes_check_estimator(name):
    results = checks(name)
    assert len(results) > 40
    failed = {r["check_name"]: repr(r["exception"]) for r in results if r["status"] == "failed"}
    assert not failed, failed
    assert {r["check_name"] for r in results if r["status"] == "skipped"} <= set(NEEDS_ARRAY_API)
    excused = {r["check_name"] for r in results if r["status"] == "xfail"}
    assert excused == set(EXPECTED_TO_FAIL.get(name, {})), "an excuse that is no longer needed must go"


def test_no_check_is_skipped():
    """The check that is skipped above needs SCIPY_ARRAY_API=1, which must be set before SciPy is imported."""
    script = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "import gramless\n"
        "from sklearn.utils.estimator_checks import estimator_checks_generator\n"
        f"for name in {ESTIMATORS!r}:\n"
        "    for estimator, check in estimator_checks_generator(getattr(gramless, name)()):\n"
        f"        if check.func.__name__ in {NEEDS_ARRAY_API!r}:\n"
        "            check(estimator)\n"
        "            print(name)\n"
    )
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ESTIMATORS


PUBLIC = [made for made in CLASSES if issubclass(made, BaseEstimator)]
IN_ORDER = [
    ("kernel", "C", "gamma", "degree", "coef0", "solver", "callback", "verbose", "random_state"),
    ("solver", "tol", "callback"),
    ("solver", "max_iter", "callback"),
    ("kernel", "Cs", "scoring", "solver"),
    ("dtype", "device", "callback"),
    ("class_weight", "memory_budget", "callback"),
]


@pytest.mark.parametrize("made", PUBLIC, ids=lambda made: made.__name__)
def test_parameters_have_common_order(made):
    given = list(inspect.signature(made).parameters)
    for order in IN_ORDER:
        assert [name for name in given if name in order] == [name for name in order if name in given]
    if "kernel" in given:
        assert given[0] == "kernel"
    if "random_state" in given:
        assert given[-1] == "random_state"


@pytest.mark.parametrize("made", PUBLIC, ids=lambda made: made.__name__)
def test_parameters_are_keyword_only_and_random_state_is_none(made):
    """One parameter may be positional as in scikit-learn: a wrapped estimator or a number of components."""
    parameters = list(inspect.signature(made).parameters.values())
    by_position = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    assert by_position in ([], ["kernel"], ["kernels"], ["estimator"], ["n_clusters"])
    assert all(p.default is None for p in parameters if p.name == "random_state")


@pytest.mark.parametrize("made", PUBLIC, ids=lambda made: made.__name__)
def test_at_most_one_base_class_of_this_library(made):
    ours = [cls.__name__ for cls in made.__mro__[1:] if cls.__module__.startswith("gramless")]
    assert len(ours) <= 1, ours


@pytest.mark.filterwarnings("default::sklearn.exceptions.ConvergenceWarning")
def test_histories_have_the_same_first_columns(estimator):
    X, y = problem(estimator)
    history = getattr(estimator.fit(X, y), "history_", None)
    if history is None:
        pytest.skip(f"{type(estimator).__name__} has no history")
    assert [list(record)[:2] for record in history] == [["n_iter", "seconds"]] * len(history)
    assert [record["n_iter"] for record in history] == list(range(1, len(history) + 1))


@pytest.mark.filterwarnings("default::sklearn.exceptions.ConvergenceWarning")
def test_records_of_callbacks_have_the_same_first_columns(estimator):
    if "callback" not in estimator.get_params() or type(estimator).__name__.startswith("Table"):
        pytest.skip(f"{type(estimator).__name__} has no callback(estimator, record)")
    seen = []
    X, y = problem(estimator)
    estimator.set_params(callback=[lambda _, record: seen.append(list(record)[:2])]).fit(X, y)
    assert seen == [["n_iter", "seconds"]] * len(seen)


def problem(estimator, n: int = 60):
    rng = np.random.default_rng(0)
    X = np.abs(rng.normal(size=(n, 5))) + 0.1
    y = np.arange(n) % 3 if is_classifier(estimator) else X.sum(axis=1)
    X[:, 0] += 2.0 * (np.arange(n) % 3)
    return X, y


def answer(estimator, X):
    """Return the predictions or the features of rows."""
    return estimator.predict(X) if hasattr(estimator, "predict") else estimator.transform(X)


def needs_targets(estimator):
    return get_tags(estimator).target_tags.required


@pytest.fixture(params=ESTIMATORS)
def estimator(request):
    made = getattr(gramless, request.param)()
    return made.set_params(random_state=0) if "random_state" in made.get_params() else made


@pytest.mark.filterwarnings("default::sklearn.exceptions.ConvergenceWarning")
def test_failed_fit_keeps_previous_model(estimator):
    """Invalid input after a successful fit raises an error and keeps the fitted model."""
    X, y = problem(estimator)
    estimator.fit(X, y)
    before, attributes = answer(estimator, X), sorted(vars(estimator))
    spoilt = X.copy()
    spoilt[3, 2] = np.inf if get_tags(estimator).input_tags.allow_nan else np.nan
    bad = [(spoilt, y), (X[:0], y[:0])]
    if needs_targets(estimator):
        bad += [(X[:, :3], y[:-1]), (X[:, :3], np.full(len(y), np.nan))]
    for bad_X, bad_y in bad:
        with pytest.raises(ValueError):
            estimator.fit(bad_X, bad_y)
        np.testing.assert_array_equal(answer(estimator, X), before)
        assert sorted(vars(estimator)) == attributes


@pytest.mark.filterwarnings("default::sklearn.exceptions.ConvergenceWarning")
def test_failed_first_fit_sets_no_attributes(estimator):
    X, y = problem(estimator)
    settings = sorted(vars(estimator))
    bad = (X, y[:-1]) if needs_targets(estimator) else (X[:0], y[:0])
    with pytest.raises(ValueError):
        estimator.fit(*bad)
    assert sorted(vars(estimator)) == settings


@pytest.mark.filterwarnings("default::sklearn.exceptions.ConvergenceWarning")
def test_saved_and_loaded_model_predicts_the_same(estimator, tmp_path):
    X, y = problem(estimator)
    path = tmp_path / "model.skops"
    gramless.save(estimator.fit(X, y), path)
    # Other points than the training ones: BLAS multiplies a matrix with itself by another algorithm.
    others, _ = problem(estimator, n=40)
    np.testing.assert_array_equal(answer(gramless.load(path), others), answer(estimator, others))


@pytest.mark.filterwarnings("default::sklearn.exceptions.ConvergenceWarning")
def test_same_seed_gives_equal_bits(estimator):
    X, y = problem(estimator)
    scores = ("decision_function", "predict", "transform")
    score = next(name for name in scores if hasattr(estimator, name))
    first, second = (getattr(clone(estimator).fit(X, y), score)(X) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.filterwarnings("default::sklearn.exceptions.ConvergenceWarning")
def test_predict_accepts_pandas_and_checks_column_names(estimator):
    pd = pytest.importorskip("pandas")
    X, y = problem(estimator)
    frame = pd.DataFrame(X, columns=list("abcde"))
    estimator.fit(frame, y)
    assert list(estimator.feature_names_in_) == list("abcde")
    if type(estimator).__name__.startswith("Table"):  # selects columns by name
        np.testing.assert_array_equal(answer(estimator, frame[list("edcba")]), answer(estimator, frame))
    else:
        with pytest.raises(ValueError, match="feature names should match"):
            answer(estimator, frame[list("edcba")])
    with pytest.raises(ValueError, match="X has 3 features, but"):
        answer(clone(estimator).fit(X, y), X[:, :3])
