"""The datasets of the papers and benchmarks as NumPy arrays with their standard splits.

>>> from gramless.papers.datasets import load
>>> load("digits").x_test.shape
(450, 64)
"""

from gramless.papers.datasets.loading import (
    Dataset,
    DatasetError,
    cache_folder,
    find,
    load,
    names,
    obtain,
    search_path,
    unsplit,
)

__all__ = ["Dataset", "DatasetError", "cache_folder", "find", "load", "names", "obtain", "search_path", "unsplit"]
