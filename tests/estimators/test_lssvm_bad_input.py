"""What a user gets for bad input: an error that says what is wrong and what to do."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas
import pytest
import scipy.sparse as sp
import torch

from gramless import CUDA, LSSVC, LSSVR, KernelSVC, NystromLSSVC
from gramless.callbacks import Checkpoint, EarlyStopping
from gramless.kernels import RBF, Linear, Polynomial, Precomputed
from gramless.linalg.solvers import CG, Kaczmarz
from gramless.linalg.tuning import TUNING

X = np.random.default_rng(0).normal(size=(20, 3))
Y = np.arange(20) % 2
CLASSIFIERS = [LSSVC, partial(LSSVC, C="loo")]
REGRESSORS = [LSSVR, partial(LSSVR, C="loo")]
EVERY = [*CLASSIFIERS, *REGRESSORS]


def with_value(value):
    spoilt = X.copy()
    spoilt[4, 1] = value
    return spoilt


@pytest.mark.parametrize("machine", EVERY)
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (with_value(np.nan), "NaN"),
        (with_value(np.inf), "infinity"),
        (X[:, 0], "Expected 2D array, got 1D array"),
        (X[None], "dim 3|got 3D|<= 2"),
        (X[:0], "0 sample"),
        (X[:, :0], r"0 feature"),
        (X + 1j, "Complex data not supported"),
        (np.full((20, 3), "cat"), "X has text where LSSV.* needs numbers .*'cat'.*OneHotEncoder"),
        (np.array([[object()] * 3] * 20), "float"),
        ([[1.0, 2.0], [3.0]] * 10, "inhomogeneous|sequence"),
        (torch.as_tensor(with_value(np.nan)), "NaN or infinity"),
        (torch.as_tensor(X[:, 0]), "Expected 2D array, got 1D tensor"),
        (torch.as_tensor(X + 1j), "Complex data not supported"),
        (torch.as_tensor(X[:0]), "at least one sample"),
        (sp.csr_matrix(with_value(np.nan)), "NaN"),
    ],
)
def test_bad_X(machine, bad, message):
    with pytest.raises((ValueError, TypeError), match=message):
        machine().fit(bad, Y)


@pytest.mark.parametrize("machine", EVERY)
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (Y[:-1], "inconsistent numbers of samples"),
        (np.where(Y == 1, np.nan, 0.0), "y contains NaN"),
        (np.where(Y == 1, np.inf, 0.0), "y contains infinity"),
        (None, "requires y to be passed"),
        (np.zeros((20, 2, 2)), "dim 3|shape|1d array"),
    ],
)
def test_bad_y(machine, bad, message):
    with pytest.raises(ValueError, match=message):
        machine().fit(X, bad)


@pytest.mark.parametrize("machine", CLASSIFIERS)
@pytest.mark.parametrize("nothing", [None, np.nan, pandas.NA])
def test_missing_labels(machine, nothing):
    with pytest.raises(ValueError, match="y contains NaN"):
        machine().fit(X, np.array([nothing, *["a", "b"] * 9, "a"], dtype=object))


@pytest.mark.parametrize("machine", CLASSIFIERS)
def test_bad_labels(machine):
    with pytest.raises(ValueError, match=r"greater than one; got 1 class"):
        machine().fit(X, np.zeros(20))
    with pytest.raises(ValueError, match="positive sample weight has to be greater than one"):
        machine().fit(X, Y, sample_weight=(Y == 0).astype(float))
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        machine().fit(X, np.random.default_rng(0).normal(size=20))
    with pytest.raises(ValueError, match=r"y should be a 1d array|bad input shape"):
        machine().fit(X, np.column_stack([Y, Y + 1]))


@pytest.mark.parametrize("machine", REGRESSORS)
def test_words_as_values(machine):
    with pytest.raises(ValueError, match=r"y has text where a regressor needs numbers|dtype='numeric'"):
        machine().fit(X, np.array(["a", "b"])[Y])


@pytest.mark.parametrize("machine", EVERY)
@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.ones(19), r"sample_weight.shape == \(19,\), expected \(20,\)"),
        (-np.ones(20), "Negative values in data passed to `sample_weight`"),
        (np.zeros(20), "all sample weights are zero|all zero|only zeros|Sample weights must contain at least one"),
        (np.full(20, np.nan), "sample_weight contains NaN"),
        (np.ones((20, 2)), "Sample weights must be 1D"),
    ],
)
def test_bad_weights(machine, weight, message):
    with pytest.raises(ValueError, match=message):
        machine().fit(X, Y, sample_weight=weight)


SETTINGS = [
    ({"C": 0.0}, "'C' parameter of LSSV. must be a float in the range .* Got 0.0"),
    ({"C": -1}, "'C' parameter of LSSV. must be a float in the range .* Got -1"),
    ({"C": np.nan}, "'C' parameter of LSSV."),
    ({"C": np.inf}, "'C' parameter of LSSV."),
    ({"C": "1"}, "'C' parameter of LSSV."),
    ({"tol": 0}, "'tol' parameter of LSSV."),
    ({"max_iter": 0}, "'max_iter' parameter .* Got 0"),
    ({"max_iter": -2}, "'max_iter' parameter .* Got -2"),
    ({"max_iter": 1.5}, "'max_iter' parameter .* Got 1.5"),
    ({"solver": Kaczmarz(-3)}, "'block_size' parameter of Kaczmarz"),
    ({"solver": CG(n_landmarks=-1)}, "'n_landmarks' parameter of CG"),
    ({"solver": CG(n_landmarks="many")}, "'n_landmarks' parameter of CG"),
    ({"solver": CG(damping=0.0)}, "'damping' parameter of CG"),
    ({"device": CUDA(precision="low")}, "unknown precision 'low'"),
    ({"device": CUDA(storage="float8")}, "unknown storage 'float8'"),
    ({"solver": "magic"}, r"'solver' parameter of LSSV. must be a str among .*'cg'.* Got 'magic'"),
    ({"solver": 3}, r"'solver' parameter of LSSV. must be a str among .*'auto'.* Got 3"),
    ({"kernel": "magic"}, r"unknown kernel 'magic'; known: .*'laplacian', 'linear', .*'poly', 'precomputed', 'rbf'"),
    ({"kernel": 3}, "kernel must be a name, a Kernel or a callable, got int"),
    ({"gamma": -1.0}, "'gamma' parameter of LSSV. .* Got -1.0"),
    ({"gamma": "wide"}, "'gamma' parameter of LSSV. .*'weighted_scale'.* Got 'wide'"),
    ({"kernel": "poly", "degree": 0}, "degree must be an integer of at least 1"),
    ({"kernel": "poly", "degree": 2.5}, "degree must be an integer of at least 1"),
    ({"kernel": "poly", "coef0": -1.0}, "coef0 must be at least 0"),
    ({"device": "abacus"}, r"unknown device 'abacus'; known: 'auto', 'cpu', 'torch:cpu', 'cuda'"),
    ({"dtype": "int32"}, "dtype must be 'float32', 'float64' or None, got 'int32'"),
    ({"memory_budget": "lots"}, "memory_budget must be a size such as '4GB'"),
    ({"memory_budget": -1}, "memory_budget must be a size such as '4GB'"),
    ({"callback": EarlyStopping(validation_fraction=1.5)}, "validation_fraction must be between 0 and 1, got 1.5"),
    ({"callback": EarlyStopping(n_iter_no_change=0)}, "n_iter_no_change must be a positive integer"),
    ({"callback": Checkpoint("x", every=0)}, "every must be a positive integer"),
    ({"callback": 3}, "callback must be callable"),
    ({"callback": [Checkpoint("x"), Checkpoint("y")]}, "more than one Checkpoint"),
    ({"callback": Checkpoint("no/such/folder/state")}, "folder of the checkpoint does not exist"),
    ({"kernel": -1.0 * RBF(gamma=1.0)}, "scale must be at least 0"),
]


@pytest.mark.parametrize(("setting", "message"), SETTINGS, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("machine", [LSSVC, LSSVR])
def test_bad_settings(machine, setting, message):
    with pytest.raises((ValueError, TypeError, FileNotFoundError), match=message):
        machine(**setting).fit(X, Y)


def test_a_device_that_is_not_there():
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    with pytest.raises(ValueError, match="torch finds no CUDA device here; use device='cpu' or 'auto'"):
        LSSVC(device="cuda").fit(X, Y)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"Cs": [1.0, -1.0]}, "every C in Cs must be a positive"),
        ({"Cs": []}, "Cs is empty"),
        ({"kernel": []}, "kernel must have at least one value"),
        ({"gamma": [0.1, -1.0]}, "gamma"),
        ({"solver": "cg"}, "eigendecomposition: use solver='auto', not 'cg'"),
        ({"C": 1.0, "gamma": [0.1, 1.0]}, "2 kernels are given by lists: LSSV[CR] compares them with C='loo' only"),
        ({"scoring": "beauty"}, "'scoring' parameter of LSSV[CR]"),
        ({"kernel": ["rbf", "precomputed"]}, "precomputed kernel cannot be compared with kernels of points"),
        ({"memory_budget": "1KB"}, r"needs .* of host memory .* memory_budget allows 1 KB; leave-one-out needs the full"),
    ],
    ids=str,
)
@pytest.mark.parametrize("machine", [LSSVC, LSSVR])
def test_bad_search_settings(machine, setting, message):
    with pytest.raises((ValueError, MemoryError), match=message):
        machine(**{"C": "loo", **setting}).fit(X[:, :1] @ X[:, :1].T, Y)


@pytest.mark.parametrize("probability", ["magic", True, None])
@pytest.mark.parametrize("machine", CLASSIFIERS)
def test_unknown_probability(machine, probability):
    with pytest.raises(ValueError, match=r"'probability' parameter of LSSV.* must be a str among .*'sigmoid'"):
        machine(probability=probability).fit(X, Y)


def test_no_probabilities_unless_wanted():
    model = LSSVC(probability=False).fit(X, Y)
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError, match="predict_proba"):
        model.predict_proba(X)


@pytest.mark.parametrize("machine", EVERY)
@pytest.mark.parametrize("kernel", ["precomputed", Precomputed()], ids=str)
def test_a_precomputed_kernel_that_is_not_square(machine, kernel):
    with pytest.raises(ValueError, match=r"must be square at fit, got shape \(20, 3\)"):
        machine(kernel=kernel).fit(X, Y)
    with pytest.raises(ValueError, match=r"X has 7 features, but \w+ is expecting 20 features"):
        machine(kernel=kernel).fit(X @ X.T, Y).predict((X @ X.T)[:, :7])


@pytest.mark.parametrize("machine", EVERY)
def test_another_number_of_features_at_predict(machine):
    model = machine().fit(X, Y)
    for other in (X[:, :2], torch.as_tensor(X[:, :2]), sp.csr_matrix(X[:, :2])):
        with pytest.raises(ValueError, match=r"X has 2 features, but \w+ is expecting 3 features"):
            model.predict(other)


@pytest.mark.parametrize("machine", EVERY)
def test_predict_checks_values_and_emptiness(machine):
    model = machine().fit(X, Y)
    with pytest.raises(ValueError, match="NaN"):
        model.predict(with_value(np.nan))
    with pytest.raises(ValueError, match="0 sample"):
        model.predict(X[:0])


@pytest.mark.parametrize("machine", EVERY)
def test_predict_before_fit(machine):
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError, match="not fitted yet"):
        machine().predict(X)


def test_a_kernel_function_of_the_wrong_shape():
    with pytest.raises(ValueError, match=r"returned shape \(20,\) for 20 and 20 points; expected \(20, 20\)"):
        LSSVC(kernel=lambda A, B: A[:, 0]).fit(X, Y)


def test_a_kernel_function_that_gives_no_numbers():
    with pytest.raises(ValueError, match="returned values that are not finite"):
        LSSVC(kernel=lambda A, B: np.full((len(A), len(B)), np.nan)).fit(X, Y)


@pytest.mark.parametrize("solver", ["cholesky", "cg"])
def test_a_function_that_is_no_kernel(solver):
    with pytest.raises((ValueError, np.linalg.LinAlgError), match="not positive semi-definite"):
        LSSVC(kernel=lambda A, B: -A @ B.T, C=10.0, solver=solver).fit(X, Y)


def test_an_indefinite_function_with_a_positive_diagonal():
    def no_kernel(A, B):
        return 1.0 - np.eye(2)[(A[:, :1] > 0).astype(int)[:, 0]] @ np.eye(2)[(B[:, :1] > 0).astype(int)[:, 0]].T

    with pytest.raises(np.linalg.LinAlgError, match="not positive definite even in float64"):
        LSSVC(kernel=no_kernel, C=100.0, solver="cholesky").fit(X, Y)


def test_sparse_rows_for_a_kernel_of_dense_ones():
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        LSSVC(kernel="chi2").fit(sp.csr_matrix(abs(X)), Y)


@pytest.mark.parametrize("solver", ["cholesky", "cg"])
def test_sparse_rows_on_a_device_are_dense_there(solver):
    torch = pytest.importorskip("torch")
    settings = {"solver": solver, "tol": 1e-8, "random_state": 0}
    dense = LSSVC(**settings).fit(X, Y)
    model = LSSVC(device="torch:cpu", **settings).fit(sp.csr_matrix(X), Y)
    model._tuning = replace(TUNING, sparse_rows_on_device=7)
    assert sp.issparse(model.points_)
    np.testing.assert_allclose(model.decision_function(sp.csr_matrix(X)), dense.decision_function(X), atol=1e-6)
    scores = LSSVC(**settings).fit(sp.csr_matrix(X), Y).decision_function(torch.tensor(X))
    np.testing.assert_allclose(scores.numpy(), dense.decision_function(X), atol=1e-6)


def test_precomputed_and_points_do_not_mix():
    with pytest.raises(ValueError, match="a precomputed kernel can be combined only with other precomputed kernels"):
        LSSVC(kernel=Precomputed() + Linear()).fit(X @ X.T, Y)


@pytest.mark.parametrize("value", [0, 1.5, "2", -1])
def test_powers_of_kernels(value):
    with pytest.raises(ValueError, match="integer power of at least 1"):
        RBF() ** value


def test_kernels_do_not_add_to_other_things():
    for bad in (lambda: RBF() + 1, lambda: RBF() * "2", lambda: "2" * RBF()):
        with pytest.raises(TypeError):
            bad()


def test_more_bytes_than_there_are():
    with pytest.raises(MemoryError, match=r"needs .* of host memory .*and memory_budget allows 1 KB; use solver='cg'"):
        LSSVC(solver="cholesky", memory_budget="1KB").fit(X, Y)
    with pytest.raises(
        MemoryError, match=r"needs .* of host memory .*allows 1 KB; raise memory_budget or fit on fewer rows"
    ):
        LSSVC(solver=CG(), memory_budget="1KB").fit(X, Y)


def test_too_few_rows_to_hold_out():
    with pytest.raises(ValueError, match="early_stopping needs more than 2 samples"):
        LSSVR(callback=EarlyStopping()).fit(X[:2], Y[:2])


def test_overflow_is_said_not_returned():
    with pytest.raises(ValueError, match=r"overflow float32.*dtype='float64'"):
        LSSVC(kernel="linear").fit((X * 1e30).astype(np.float32), Y)
    with pytest.raises(ValueError, match=r"overflow float64 or are not numbers: scale the data"):
        LSSVC(kernel=Polynomial(degree=9, gamma=1.0)).fit(X * 1e100, Y)
    with pytest.raises(ValueError, match="scale the data"):
        LSSVC().fit(X * 1e200, Y)


@pytest.mark.parametrize("machine", [LSSVC, partial(LSSVC, C="loo"), KernelSVC, NystromLSSVC])
@pytest.mark.parametrize("factor", [-1.0, np.nan, "heavy"])
def test_class_weights_that_cannot_be(machine, factor):
    X, y = np.arange(8.0)[:, None], np.arange(8) % 2
    with pytest.raises(ValueError, match=r"class_weight must be finite numbers of at least 0, got .* for class 1"):
        machine(class_weight={0: 1.0, 1: factor}).fit(X, y)


def test_class_weights_of_a_stream_that_cannot_be():
    X, y = np.arange(8.0)[:, None], np.arange(8) % 2
    with pytest.raises(ValueError, match="class_weight must be finite numbers of at least 0"):
        NystromLSSVC(class_weight={0: -1.0}).partial_fit(X, y, classes=[0, 1])
