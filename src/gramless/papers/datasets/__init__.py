"""The datasets of the papers and benchmarks as NumPy arrays with their standard splits.

>>> from gramless.papers.datasets import load
>>> load("digits").x_test.shape
(450, 64)
"""

from gramless.papers.datasets.dataset import Dataset, DatasetError
from gramless.papers.datasets.loading import cache_folder, find, load, names, obtain, search_path

__all__ = ["Dataset", "DatasetError", "cache_folder", "find", "load", "names", "obtain", "search_path"]
