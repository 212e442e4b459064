"""Random Fourier features as a transformer, so that any model can stand on them.

    phi(x) = [cos(W x), sin(W x)] / sqrt(D),     phi(x) . phi(y) = k(x, y) on average

for D frequencies `W` drawn from the spectrum of a stationary kernel. The map looks at the data for `gamma="scale"` alone.

Cost: O(d D) for each row, O(D log d) where the frequencies are structured.

Reference: Rahimi and Recht (2007), Random features for large-scale kernel machines; Yu, Suresh, Choromanski, Holtmann-Rice
and Kumar (2016), Orthogonal random features.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.doc_links import link_documentation
from gramless._core.memory import MemoryEstimate
from gramless._core.validation import atomic_fit, check_X, working_dtype
from gramless.approximation.features.fourier_map import FourierMap
from gramless.kernels import Kernel
from gramless.linalg.planning.plan import FitPlan
from gramless.models.expansion import kernel_from_settings


@link_documentation
class FourierFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Random features whose inner products are a stationary kernel on average.

    Parameters
    ----------
    kernel : {"rbf", "laplacian", "exponential", "matern32", "matern52"} or Kernel, default="rbf"
        What the inner products approximate.
    gamma : float, "scale" or "auto", default="scale"
        Of a kernel given by name, as in `sklearn.svm.SVC`.
    n_components : int, default=500
        Features: cosines and sines together; rounded up to an even number.
    draw : {"auto", "plain", "orthogonal", "structured"}, default="auto"
        How frequencies are drawn: independent, orthogonal to each other (a smaller variance), or as products of Hadamard
        matrices (cheap for many columns). "auto" is orthogonal where the spectrum allows it, structured from 2,048 columns.
    dtype : {"float32", "float64"} or None, default=None
        Of the features. None is float32 for float32 and byte data, else float64.
    random_state : int, RandomState or None, default=None
        Draws the frequencies.

    Attributes
    ----------
    frequencies_ : ndarray of shape (n_features, n_components / 2)
        `W`.
    kernel_ : Kernel
        With every setting a number.
    n_features_in_ : int
        Columns of `X` at fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Their names, where `X` had names.

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

    n_features_in_: int

    def __init__(
        self,
        *,
        kernel: str | Kernel = "rbf",
        gamma: float | str = "scale",
        n_components: int = 500,
        draw: str = "auto",
        dtype: Any = None,
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.gamma = gamma
        self.n_components = n_components
        self.draw = draw
        self.dtype = dtype
        self.random_state = random_state

    @atomic_fit
    def fit(self, X: Any, y: Any = None) -> FourierFeatures:
        """Draw frequencies.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Rows, of which the columns are counted, and the variance taken where gamma asks for it.
        y : array-like of shape (n_samples,), optional
            Not used: here for the sake of pipelines.

        Returns
        -------
        FourierFeatures
            This transformer, fitted.
        """
        X = check_X(self, X, dtype=working_dtype(X, self.dtype), reset=True)
        feature_map = FourierMap(kernel_from_settings(self), self.n_components, draw=self.draw)
        feature_map.n_features(None)  # refuses counts that are none
        self._map = feature_map.begin(X, None, check_random_state(self.random_state))
        self._dtype = xa.numpy_dtype(X).name
        self.kernel_ = self._map.kernel
        return self

    def partial_fit(self, X: Any, y: Any = None) -> FourierFeatures:
        """Draw frequencies when the first rows come; later ones change nothing.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Rows; give gamma as a number where the first are unlike the rest.
        y : array-like of shape (n_samples,), optional
            Not used.

        Returns
        -------
        FourierFeatures
            This transformer, fitted.
        """
        if not hasattr(self, "kernel_"):
            return self.fit(X)
        check_X(self, X, dtype=np.dtype(self._dtype), reset=False)
        return self

    def plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> FitPlan:
        """What a fit of this size would hold.

        Parameters
        ----------
        n, d, n_outputs : int
            Rows, features, and columns of targets.
        dtype : dtype
            Of the data.
        device : str
            Where to compute.

        Returns
        -------
        FitPlan
            Or a `MemoryError` where that is too much.
        """
        itemsize = np.dtype(dtype).itemsize
        frequencies = int(self.n_components) * d * 8 * 2  # as they are drawn, and in the precision of the data
        return FitPlan(MemoryEstimate({"data": n * d * itemsize, "frequencies": frequencies}, device))

    def transform(self, X: Any) -> np.ndarray:
        """The features of rows.

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
        """The frequencies, one in each column."""
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
