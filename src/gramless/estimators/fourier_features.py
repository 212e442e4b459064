"""Random Fourier features as a scikit-learn transformer.

    phi(x) = [cos(W x), sin(W x)] / sqrt(D),     E[phi(x) . phi(y)] = k(x, y)

for D frequencies `W` drawn from the spectrum of a stationary kernel. The data are used only for `gamma="scale"`.

Cost: O(d D) for each row, O(D log d) with structured frequencies.

References: Rahimi and Recht, "Random features for large-scale kernel machines", 2007; Yu, Suresh, Choromanski,
Holtmann-Rice and Kumar, "Orthogonal random features", 2016.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.constraints import estimator
from gramless._core.memory import MemoryEstimate
from gramless._core.validation import atomic_fit, check_X, working_dtype
from gramless.approximation.features.fourier_map import DRAWS, FourierMap
from gramless.kernels import Kernel, kernel_from_parameters
from gramless.linalg.planning.plan import FitPlan


@estimator
class FourierFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Random features whose inner products have a stationary kernel as their expected value.

    Prefer it to scikit-learn's `RBFSampler` for its orthogonal frequencies, whose variance is smaller, and for Laplacian and
    Matern kernels.

    Parameters
    ----------
    kernel : {"rbf", "laplacian", "exponential", "matern32", "matern52"} or Kernel, default="rbf"
        Kernel function. It must be stationary; the inner products of the features approximate it.
    gamma : float, "scale" or "auto", default="scale"
        Coefficient of a kernel given by name; `"scale"` is `1 / (n_features * X.var())` and `"auto"` is `1 / n_features`.
    n_components : int, default=500
        Number of features. Cosines and sines of half as many frequencies, rounded up to an even number.
    draw : {"auto", "plain", "orthogonal", "structured"}, default="auto"
        Distribution of the random frequencies. `"plain"`: independent; `"orthogonal"`: orthogonal to each other, with
        smaller variance; `"structured"`: products of Hadamard matrices, faster for many columns. `"auto"` is orthogonal,
        structured from 2048 columns on, and plain for the Laplacian kernel of the city-block norm.
    dtype : {"float32", "float64"} or None, default=None
        Floating-point precision of the computation; None uses float32 for float32 and uint8 data, else float64.
    random_state : int, RandomState or None, default=None
        Seed or generator for all random choices of the fit; an int makes the fit reproducible.

    Attributes
    ----------
    frequencies_ : ndarray of shape (n_features, n_components / 2)
        Frequencies `W`.
    kernel_ : Kernel
        Kernel with numeric parameters.
    n_features_in_ : int
        Number of columns of `X` in `fit`.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if `X` had names.

    See Also
    --------
    NystromFeatures : Features from landmarks, for any kernel.
    FourierLSSVC : A classifier on these features, fitted in one pass.

    References
    ----------
    A. Rahimi and B. Recht, "Random features for large-scale kernel machines", 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import FourierFeatures
    >>> X = np.random.default_rng(0).normal(size=(5, 3))
    >>> phi = FourierFeatures(gamma=0.5, n_components=20_000, random_state=0).fit_transform(X)
    >>> distances = ((X[:, None] - X) ** 2).sum(axis=2)
    >>> bool(np.abs(phi @ phi.T - np.exp(-0.5 * distances)).max() < 0.02)
    True
    """

    kernel: str | Kernel = "rbf"
    gamma: float | str = "scale"
    n_components: int = 500
    draw: str = "auto"
    dtype: Any = None
    random_state: Any = None

    _parameter_constraints: ClassVar[dict[str, Any]] = {"draw": [StrOptions(set(DRAWS))]}

    @atomic_fit
    def fit(self, X: Any, y: Any = None) -> FourierFeatures:
        """Draw the frequencies.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Training rows; only their number of columns, and the variance for `gamma="scale"`, are used.
        y : array-like of shape (n_samples,), optional
            Ignored.

        Returns
        -------
        FourierFeatures
            Fitted transformer.
        """
        self._validate_params()
        X = check_X(self, X, dtype=working_dtype(X, self.dtype), reset=True)
        feature_map = FourierMap(kernel_from_parameters(vars(self)), self.n_components, draw=self.draw)
        self._map = feature_map.begin(X, None, check_random_state(self.random_state))
        self._dtype = xa.numpy_dtype(X).name
        self.kernel_ = self._map.kernel
        return self

    def partial_fit(self, X: Any, y: Any = None) -> FourierFeatures:
        """Draw the frequencies in the first call; later calls only validate their rows.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Rows; pass gamma as a number if later rows differ from the first.
        y : array-like of shape (n_samples,), optional
            Ignored.

        Returns
        -------
        FourierFeatures
            Fitted transformer.
        """
        if not hasattr(self, "kernel_"):
            return self.fit(X)
        check_X(self, X, dtype=np.dtype(self._dtype), reset=False)
        return self

    def _fit_plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> FitPlan:
        """Return the memory plan of a fit of `n` rows and `d` features; `MemoryError` if it exceeds the budget."""
        itemsize = np.dtype(dtype).itemsize
        frequencies = int(self.n_components) * d * 8 * 2  # one copy in float64, one in the precision of the data
        return FitPlan(MemoryEstimate({"data": n * d * itemsize, "frequencies": frequencies}, device))

    def transform(self, X: Any) -> np.ndarray:
        """Return the features of rows.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n, n_components)
            Cosines, then sines, in the order of the frequencies.
        """
        check_is_fitted(self, "kernel_")
        X = check_X(self, X, dtype=np.dtype(self._dtype), reset=False)
        return np.asarray(self._map(X if xa.is_sparse(X) else xa.to_numpy(X)))

    @property
    def frequencies_(self) -> np.ndarray:
        """Frequencies, one per column."""
        check_is_fitted(self, "kernel_")
        return self._map.frequencies()

    @property
    def _n_features_out(self) -> int:
        return self._map.n_features

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
