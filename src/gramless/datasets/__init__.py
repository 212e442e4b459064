"""The datasets of the papers, as plain arrays with their standard splits.

>>> from gramless.datasets import load
>>> load("digits").x_test.shape
(450, 64)
"""

from gramless.datasets.dataset import Dataset, DatasetError
from gramless.datasets.loading import cache_folder, find, load, names, obtain, search_path

__all__ = ["Dataset", "DatasetError", "cache_folder", "find", "load", "names", "obtain", "search_path"]
