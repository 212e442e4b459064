"""The parts of a table model against dense algebra, refits and scikit-learn."""

import subprocess
import sys
import threading

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import QuantileTransformer
from threadpoolctl import threadpool_limits

from gramless._core.threads import blas_threads, run_round_robin
from gramless.inference.leave_one_out import inverse_factor
from gramless.inference.softmax_link import fit_link, link_probabilities, temperature_losses
from gramless.kernels import RBF, Exponential, Laplacian, Matern52, ScaledColumns
from gramless.kernels.tuning import TUNING
from gramless.tables import exact, members, search
from gramless.tables.column_types import Encoded
from gramless.tables.exact import ScaleProblem, scale_slopes, solve_exact, upper_kernel_matrix
from gramless.tables.losses import ClassLoss, ValueLoss, poisson_regression
from gramless.tables.partition import Partition
from gramless.tables.preparation import Preparation, normal_ranks
from gramless.tables.search import Evaluation, SearchOptions, TableSetting, choose
from gramless.tables.tuning import TablesTuning


def fitted_without(X, kernel, Z, ridge, i):
    """Score of row i from a dense solve of the bordered system without it."""
    rest = np.delete(np.arange(len(X)), i)
    n = len(rest)
    M = np.zeros((n + 1, n + 1))
    M[:n, :n] = kernel(X[rest], X[rest]) + np.diag(ridge[rest])
    M[:n, n] = M[n, :n] = 1
    solution = np.linalg.solve(M, np.vstack([Z[rest], np.zeros((1, Z.shape[1]))]))
    return kernel(X[i : i + 1], X[rest]) @ solution[:n] + solution[n]


@pytest.mark.parametrize("kernel", [RBF(0.5), Laplacian(0.3), Exponential(0.7)], ids=str)
def test_leave_one_out_scores_are_those_of_refits(kernel):
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(40, 3)), rng.normal(size=(40, 2))
    ridge = 1 / (3.0 * rng.uniform(0.5, 2.0, 40))
    solution = solve_exact(X, kernel, Z, ridge)
    for i in (0, 7, 39):
        np.testing.assert_allclose(solution.scores[i], fitted_without(X, kernel, Z, ridge, i)[0], rtol=1e-8)


def test_single_precision_is_used_for_many_rows_and_agrees(monkeypatch):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(700, 4))
    Z = np.sin(X[:, :1])
    ridge = np.full(len(X), 0.1)
    single = solve_exact(X, Exponential(0.5), Z, ridge)
    assert single.points.dtype == np.float32
    monkeypatch.setattr(exact, "SINGLE_FROM", 1000)
    double = solve_exact(X, Exponential(0.5), Z, ridge)
    assert double.points.dtype == np.float64
    assert np.abs(single.scores - double.scores).max() < 1e-3


@pytest.mark.parametrize("kernel", [RBF(0.2), Laplacian(0.3), Exponential(0.7), Matern52(0.5)], ids=str)
@pytest.mark.parametrize("n", [1, 255, 257, 700, 1100])
def test_a_kernel_matrix_in_strips_is_the_whole_one_above_the_diagonal(kernel, n):
    X = np.random.default_rng(2).normal(size=(n, 3))
    np.testing.assert_allclose(np.triu(upper_kernel_matrix(X, kernel)), np.triu(kernel(X, X)), atol=1e-12)


def test_a_kernel_matrix_that_is_kept_serves_other_ridges():
    rng = np.random.default_rng(3)
    X, Z, kept = rng.normal(size=(300, 3)), rng.normal(size=(300, 2)), {}
    for C in (0.1, 1.0, 100.0):
        ridge = np.full(300, 1 / C)
        with_kept, without = solve_exact(X, RBF(0.3), Z, ridge, cached=kept), solve_exact(X, RBF(0.3), Z, ridge)
        np.testing.assert_array_equal(with_kept.scores, without.scores)
    assert list(kept) == [np.float64]
    # Nothing but the matrix that is there is asked for: with one of another kernel the answer is another.
    kept[np.float64] = upper_kernel_matrix(X, RBF(3.0))
    other = solve_exact(X, RBF(0.3), Z, ridge, cached=kept)
    np.testing.assert_array_equal(other.scores, solve_exact(X, RBF(3.0), Z, ridge).scores)


@pytest.mark.parametrize("n", [60, 600], ids=["numpy", "compiled"])
def test_sums_of_absolute_differences_with_and_without_compiled_code(n):
    rng = np.random.default_rng(4)
    X = np.column_stack([rng.normal(size=(n, 3)), rng.normal(size=n) > 0, np.where(rng.normal(size=n) > 1, 7.0, -2.0)])
    X = np.column_stack([X, np.full(n, 3.0)])
    V = rng.normal(size=(n, n))
    V += V.T
    assert (V.size >= exact.COMPILED_VALUES) == (n == 600)
    expected = [(V * np.abs(x[:, None] - x[None, :])).sum() for x in X.T]
    np.testing.assert_allclose(scale_slopes("laplacian", X, V), expected, rtol=1e-9, atol=1e-8)


def test_a_thousand_rows_load_no_compiled_code():
    code = (
        "import sys, numpy as np, gramless\n"
        "X = np.random.default_rng(0).normal(size=(1000, 4))\n"
        "gramless.TableRegressor(random_state=0, time_budget=100).fit(X, np.sin(X[:, 0]) + X[:, 1])\n"
        "print('numba' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_settings_are_evaluated_in_parallel_with_one_thread_each():
    meeting = threading.Barrier(2, timeout=10)

    def meets():
        meeting.wait()
        yield
        return blas_threads()

    X = np.random.default_rng(0).normal(size=(10, 2))
    encoded = Encoded(X, np.empty((10, 0), dtype=np.intp))
    preparations = {"standard": Preparation("standard", []).fit(encoded)}
    loss = ValueLoss(X[:, 0], "squared_error", None)
    one = search.SettingSearch(encoded, np.arange(10), preparations, loss, SearchOptions())
    with threadpool_limits(2):
        assert one._each([meets(), meets()]) == [1, 1]


def test_a_matrix_that_cannot_be_factored_is_reported():
    X = np.zeros((5, 2))
    assert solve_exact(X, RBF(1.0), np.eye(5)[:, :1], np.full(5, -1e-3)) is None


def test_quantiles_become_normal_and_indicators_stay():
    rng = np.random.default_rng(0)
    numbers = np.column_stack([np.exp(rng.normal(size=2000)), rng.integers(0, 2, 2000) * 7.0 + 3])
    numbers[:10, 0] = np.nan
    encoded = Encoded(numbers, rng.integers(-1, 3, (2000, 1)))
    X = Preparation("quantile", [3]).fit(encoded)(encoded)
    assert X.shape == (2000, 1 + 1 + 1 + 3)
    np.testing.assert_allclose(np.quantile(X[10:, 0], [0.1, 0.5, 0.9]), norm.ppf([0.1, 0.5, 0.9]), atol=0.06)
    assert set(np.unique(X[:, 1])) == {0.0, 1.0}
    np.testing.assert_array_equal(X[:, 2], np.arange(2000) < 10)
    np.testing.assert_array_equal(X[:, 3:].sum(axis=1), encoded.codes[:, 0] >= 0)


@pytest.mark.parametrize("scaling", ["standard", "log"])
def test_numbers_are_standardised(scaling):
    numbers = np.exp(np.random.default_rng(0).normal(size=(500, 2)))
    encoded = Encoded(numbers, np.empty((500, 0), int))
    X = Preparation(scaling, []).fit(encoded)(encoded)
    np.testing.assert_allclose(X.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(X.std(axis=0), 1)


@pytest.mark.parametrize("name", search.KERNELS)
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("kind", ["values", "two classes", "three classes"])
def test_slopes_of_the_leave_one_out_loss_are_those_of_finite_differences(name, weighted, kind):
    rng = np.random.default_rng(3)
    X, groups, rows = rng.normal(size=(40, 4)), np.array([0, 1, 2, 2]), np.arange(40)
    weights = rng.uniform(0.5, 2.0, 40) if weighted else None
    loss = (
        ValueLoss(np.sin(X[:, 0]) + 0.3 * rng.normal(size=40), "squared_error", weights)
        if kind == "values"
        else ClassLoss(rng.integers(0, 2 if kind == "two classes" else 3, 40), 2 if kind == "two classes" else 3, weights)
    )
    at, step = np.array([0.3, -0.2, 0.1, 1.0]), 1e-5

    value = ScaleProblem(X, groups, name, 0.4, loss, rows, False).loss_and_slopes
    expected = [(value(at + e)[0] - value(at - e)[0]) / (2 * step) for e in step * np.eye(4)]
    np.testing.assert_allclose(value(at)[1], expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("name", search.KERNELS)
def test_the_loss_that_scales_are_learned_by_is_the_one_of_the_search(name):
    rng = np.random.default_rng(0)
    X, scales, rows = rng.normal(size=(50, 3)), np.array([1.0, 2.0, 0.5]), np.arange(50)
    loss = ValueLoss(np.sin(X[:, 0]) + 0.1 * rng.normal(size=50), "squared_error", None)
    setting = TableSetting("standard", name, 0.7, 3.0, scales=tuple(scales.tolist()))
    scores = solve_exact(X, search.make_kernel(setting, 3.0), loss.targets(rows, False), np.full(50, 1 / 3.0)).scores
    gamma = search.kernel_gamma(name, 0.7, 3.0)
    logs = np.log(scales)
    problem = ScaleProblem(X, np.arange(3), name, gamma, loss, rows, False)
    value, _ = problem.loss_and_slopes(np.append(logs, np.log(3.0)))
    prior = exact.PRIOR * np.sum((logs - logs.mean()) ** 2) / 100
    np.testing.assert_allclose(value, 0.5 * np.log(loss(loss.predictions(scores, rows, False), rows)) + prior, rtol=1e-6)


def test_scales_grow_where_the_function_changes():
    rng = np.random.default_rng(0)
    X, rows = rng.normal(size=(300, 4)), np.arange(300)
    loss = ValueLoss(np.sin(2 * X[:, 0]), "squared_error", None)
    logs, C = ScaleProblem(X, np.arange(4), "exponential", 0.5, loss, rows, False).learn(np.zeros(4), 20.0, 10)
    assert logs[0] > logs[1:].max() + 1
    assert C > 20.0


def test_learned_scales_are_compared_on_rows_they_were_not_learned_from():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 30)), rng.normal(size=120)
    encoded, loss = Encoded(X, np.empty((120, 0), int)), ValueLoss(y, "squared_error", None)
    prepared = {"standard": Preparation("standard", []).fit(encoded)}
    order = rng.permutation(120)
    one = search.SettingSearch(encoded.take(order), order, prepared, loss, SearchOptions())
    (learned,) = one.learn([TableSetting("standard", "rbf", 0.3, 1.0)], 120)
    flattered = one.evaluate(learned, 120)
    (honest,) = run_round_robin([one.unbiased_search(learned, 120, 1)], 1)
    assert honest.loss > 1.02 * flattered.loss  # there is nothing to learn
    (even, odd), _ = one.halves[learned.scales]
    without = one.evaluate(search.replace(learned, scales=odd), 120).predictions
    np.testing.assert_array_equal(honest.predictions[::2], without[::2])
    np.testing.assert_allclose(np.sqrt(np.array(even) * odd), learned.scales, rtol=1e-4)


def test_a_partition_sends_each_row_to_its_part():
    X = np.random.default_rng(0).normal(size=(1000, 5))
    tree = Partition(130).fit(X)
    counts = np.bincount(tree.parts(X), minlength=tree.n_parts_)
    assert counts.max() <= 130
    assert counts.sum() == 1000
    assert Partition(10).fit(np.ones((50, 2))).n_parts_ == 1  # equal rows cannot be told apart


def test_neighbourhoods_are_whole_and_dense():
    X = np.random.default_rng(0).uniform(size=(4000, 2))
    known = np.arange(0, 4000, 10)
    rows = search.local_rows(X, known, np.ones(400), SearchOptions(seconds=10.0), 500, np.random.RandomState(0))
    assert 400 <= len(rows) <= 500
    # The nearest neighbour of almost every row is there too: in a sample of an eighth of the rows it would be in an eighth.
    nearest = NearestNeighbors(n_neighbors=2).fit(X).kneighbors(X[rows], return_distance=False)[:, 1]
    assert np.isin(nearest, rows).mean() > 0.8


def test_local_subsets_are_drawn_where_the_loss_is():
    X = np.random.default_rng(0).uniform(size=(4000, 2))
    known = np.arange(0, 4000, 10)
    corner = (X < 0.15).all(axis=1)
    losses = np.where(corner[known], 1.0, 1e-6)
    for seed in range(5):
        rows = search.local_rows(X, known, losses, SearchOptions(seconds=10.0), 500, np.random.RandomState(seed))
        assert corner[rows].sum() > 0.5 * corner.sum()


def test_city_block_distances_of_predictions_are_computed_in_blocks_for_compiled_code():
    blocks = []

    class Recorded(Laplacian):
        def __call__(self, X, Y, out=None):
            blocks.append((len(X), len(Y)))
            return super().__call__(X, Y, out)

    rng = np.random.default_rng(0)
    X, points, coef = rng.normal(size=(1000, 4)), rng.normal(size=(3100, 4)), rng.normal(size=(3100, 2))
    scales = np.array([1.0, 0.5, 2.0, 0.0])
    found = members._expansion(ScaledColumns(Recorded(0.3), scales), X, points, coef)
    np.testing.assert_allclose(found, np.exp(-0.3 * cdist(X * scales, points * scales, "cityblock")) @ coef, atol=1e-8)
    assert len(blocks) > 1
    assert min(a * b for a, b in blocks) >= TUNING.compiled_values


def test_the_link_is_calibrated_and_close_to_a_logistic_regression_of_its_inputs():
    rng = np.random.default_rng(0)
    truth = rng.dirichlet(np.ones(3), size=4000)
    codes = np.array([rng.choice(3, p=p) for p in truth])
    scores = truth + 0.05 * rng.normal(size=truth.shape)
    P = link_probabilities(scores, fit_link(scores, codes, 3))
    np.testing.assert_allclose(P.sum(axis=1), 1)
    best = LogisticRegression(C=1e4).fit(np.hstack([scores, np.log(np.maximum(scores, 1e-3))]), codes)
    assert (
        log_loss(codes, P)
        < log_loss(codes, best.predict_proba(np.hstack([scores, np.log(np.maximum(scores, 1e-3))]))) + 0.01
    )
    assert temperature_losses(scores, codes).mean() >= log_loss(codes, P) - 0.01


def test_the_link_of_separated_classes_is_finite_and_confident():
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1, 2], 50)
    scores = np.eye(3)[codes] + 0.1 * rng.normal(size=(150, 3))
    link = fit_link(scores, codes, 3)
    P = link_probabilities(scores, link)
    assert np.isfinite(link).all()
    assert np.abs(link).max() < 30
    # No error among 150 rows: the probability of an error is at most about one in the number of rows.
    assert 1 - P[np.arange(150), codes].mean() < 1 / 150


def test_weights_of_the_link_are_copies():
    rng = np.random.default_rng(0)
    scores, codes = rng.normal(size=(60, 1)), rng.integers(0, 2, 60)
    weights = rng.integers(1, 4, 60)
    weighted = fit_link(scores, codes, 2, weights)
    copied = fit_link(np.repeat(scores, weights, axis=0), np.repeat(codes, weights), 2)
    np.testing.assert_allclose(link_probabilities(scores, weighted), link_probabilities(scores, copied), atol=1e-4)


def test_means_of_logarithmic_values_add_up():
    rng = np.random.default_rng(0)
    y = np.exp(rng.normal(size=500) + 3)
    loss = ValueLoss(y, "squared_error", None)
    assert loss.can_log
    rows = np.arange(500)
    noisy = loss.targets(rows, True) + 0.3 * rng.normal(size=(500, 1))
    np.testing.assert_allclose(loss.predictions(noisy, rows, True).sum(), y.sum())
    np.testing.assert_allclose(loss.predictions(loss.targets(rows, True), rows, True), y)


def test_predicted_logarithms_become_conditional_means():
    # The standard deviation of the logarithm decreases from 1.2 to 0.3, so that the ratio of mean and median, exp(sd^2 / 2),
    # is not constant.
    rng = np.random.default_rng(0)
    medians, deviations = np.linspace(0, 6, 200_000), np.linspace(1.2, 0.3, 200_000)
    y = np.exp(medians + deviations * rng.normal(size=200_000))
    means = np.exp(medians + deviations**2 / 2)
    for weights in (None, rng.uniform(0.5, 2.0, 200_000)):
        loss = ValueLoss(y, "squared_error", weights)
        rows, scores = np.arange(len(y)), ((medians - loss.log_mean) / loss.log_spread)[:, None]
        np.testing.assert_allclose(loss.predictions(scores, rows, True), means, rtol=0.05)
    # A robust loss predicts medians.
    robust = ValueLoss(y, "absolute_error", None)
    scores = ((medians - robust.log_mean) / robust.log_spread)[:, None]
    np.testing.assert_allclose(robust.predictions(scores, rows, True), np.clip(np.exp(medians), y.min(), y.max()))


def test_poisson_regression_solves_its_equations():
    rng = np.random.default_rng(0)
    for spread in (0.1, 3.0, 12.0):
        x, weights = rng.normal(size=300), rng.uniform(0.1, 3.0, 300)
        X, y = np.column_stack([np.ones(300), x, x**2]), 1e60 * np.exp(spread * rng.normal(size=300))
        means = np.exp(X @ poisson_regression(X, y, weights))
        # The weighted residuals are orthogonal to the columns.
        np.testing.assert_allclose(X.T @ (weights * means), X.T @ (weights * y), rtol=1e-6)


def test_conversions_have_the_loss_of_one_factor_at_most():
    rng = np.random.default_rng(1)
    rows = np.arange(60)
    for _ in range(20):
        y = np.exp(rng.standard_t(2, size=60))
        loss = ValueLoss(y, "squared_error", None)
        scores = rng.uniform(0, 1) * loss.targets(rows, True) + rng.normal(size=(60, 1))
        medians = np.exp(np.clip(scores[:, 0] * loss.log_spread + loss.log_mean, np.log(y.min()), np.log(y.max())))
        smeared = np.clip(np.clip(y.sum() / medians.sum(), 0.5, 2) * medians, y.min(), y.max())
        found = loss.predictions(scores, rows, True)
        assert np.mean((found - y) ** 2) <= np.mean((smeared - y) ** 2) * (1 + 1e-9)
        # Larger logarithms give larger values.
        assert (np.diff(found[np.argsort(scores[:, 0])]) >= -1e-9).all()


def test_logarithms_are_not_extrapolated():
    y = np.exp(np.random.default_rng(0).normal(size=200))
    loss = ValueLoss(y, "squared_error", None)
    for powers in ((1.0, 0.0), (1.2, 0.1)):
        predicted = ValueLoss.from_scores(np.array([[-50.0], [50.0]]), loss.scales(), True, 1.1, powers)
        assert y.min() * (1 - 1e-12) <= predicted[0] <= predicted[1] <= y.max() * (1 + 1e-12)
    np.testing.assert_allclose(predicted[1], y.max())
    # Files of version 0.1.0 do not have the range.
    assert ValueLoss.from_scores(np.array([[50.0]]), loss.scales()[:4], True, 1.1)[0] > y.max()


def test_finalists_are_of_every_kernel_with_and_without_logarithms_and_encodings():
    def one(kernel, loss, **changes):
        setting = TableSetting(changes.pop("scaling", "standard"), kernel, 1.0, 1.0, **changes)
        return Evaluation(setting, loss, 1, np.zeros(1))

    found = [one("rbf", 0.1), one("rbf", 0.2, scaling="quantile"), one("rbf", 0.3, log=True), one("laplacian", 0.9)]
    found.append(one("rbf", 0.8, scaling="quantile" + search.TARGET_ENCODED))
    assert [kept.loss for kept in search._diverse(found, 4)] == [0.1, 0.3, 0.8, 0.9]
    assert len(search._diverse(found, 9)) == 5


def test_an_average_is_chosen_only_where_it_helps():
    rng = np.random.default_rng(0)
    y = rng.normal(size=400)
    loss = ValueLoss(y, "squared_error", None)
    rows = np.arange(400)
    noises = rng.normal(size=(3, 400))

    def record(predictions, name):
        return Evaluation(TableSetting("standard", name, 1.0, 1.0), loss(predictions, rows), 400, predictions)

    independent = choose([record(y + noise, str(k)) for k, noise in enumerate(noises)], loss, rows)
    assert len(independent) == 3
    assert sum(weight for _, weight in independent) == pytest.approx(1)
    same = choose([record(y + noises[0], "a"), record(y + 1.1 * noises[0], "b")], loss, rows)
    assert [weight for _, weight in same] == [1.0]


def test_ranks_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    X = np.column_stack(
        [
            rng.normal(size=400),
            rng.integers(0, 4, 400),
            np.where(rng.random(400) < 0.4, 0.0, rng.random(400)),
            rng.random(400),
        ]
    )
    fitted = QuantileTransformer(n_quantiles=100, output_distribution="normal", random_state=0).fit(X)
    others = np.vstack([X, 3 * X - 1, X[:5] + 1e-8, X[::-1] / 2])  # more than are ranked at a time
    np.testing.assert_allclose(normal_ranks(others, fitted), fitted.transform(others.copy()), atol=1e-6)


def test_column_scales_are_learned_equally_in_both_precisions(monkeypatch):
    rng = np.random.default_rng(0)
    X, rows = rng.normal(size=(700, 4)), np.arange(700)
    loss = ValueLoss(np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=700), "squared_error", None)
    at = np.array([0.3, -0.2, 0.1, -0.1, 1.0])
    problem = ScaleProblem(X, np.arange(4), "exponential", 0.4, loss, rows, False)
    dtypes = []

    def factor(A):
        dtypes.append(A.dtype)
        return inverse_factor(A)

    monkeypatch.setattr(exact, "inverse_factor", factor)
    single = problem.loss_and_slopes(at)
    monkeypatch.setattr(exact, "SINGLE_FROM", 1000)
    double = problem.loss_and_slopes(at)
    assert dtypes == [np.float32, np.float64]
    np.testing.assert_allclose(single[0], double[0], rtol=1e-4)
    np.testing.assert_allclose(single[1], double[1], atol=1e-3 * np.abs(double[1]).max())


def test_only_settings_that_may_be_best_or_help_the_average_are_promising():
    rng = np.random.default_rng(0)
    y, rows = rng.normal(size=1000), np.arange(1000)
    loss = ValueLoss(y, "squared_error", None)
    best = y + 0.5 * rng.normal(size=1000)
    independent = y + 0.6 * rng.normal(size=1000)  # significantly worse, but its errors are independent
    worse = best + np.where(rng.random(1000) < 0.5, 0.2, -0.2)
    close = best + 0.01 * rng.normal(size=1000)
    found = [
        Evaluation(TableSetting("standard", "rbf", float(k), 1.0), loss(p, rows), 1000, p)
        for k, p in enumerate((best, independent, worse, close))
    ]
    kept = {one.setting.width for one in search.promising(found, loss, rows, TablesTuning())}
    assert kept == {0.0, 1.0, 3.0}


@pytest.mark.parametrize("metric_name", ["log_loss", "accuracy"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_the_loss_is_the_mean_of_the_losses_of_the_rows(metric_name, weighted):
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.5, 2.0, 60) if weighted else None
    rows = rng.permutation(60)[:50]
    classes = ClassLoss(rng.integers(0, 3, 60), 3, weights, metric_name)
    scores = rng.normal(size=(50, 3)) * 0.2 + np.eye(3)[classes.codes[rows]]
    own = classes.weights_of(rows)
    np.testing.assert_allclose(classes.by_row(scores, rows).sum() / own.sum(), classes(scores, rows), rtol=1e-9)
