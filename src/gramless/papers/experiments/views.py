"""How an experiment is shown: small declarations that the report draws.

A view names what it draws by the keys of a finished fit: a grid parameter (``"block_size"``), a metric
(``"error"``, ``"seconds"``, ...) or, for `History`, a key of the history records (``"n_iter"``,
``"residual"``). Metrics that are shares are in percent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class History:
    """One line per fit: what a quantity did while the fit ran.

    Parameters
    ----------
    y : str
        A key of the history records.
    x : str
        The key it is drawn against.
    series : tuple of str
        Parameters whose values name the lines; those that vary when empty.
    facet : str, optional
        A parameter with one chart for each of its values.
    log_x : bool
        Whether the first axis is logarithmic.
    log_y : bool
        Whether the second axis is logarithmic.
    title : str
        Of the figure; made from the keys when empty.

    See Also
    --------
    Spec : Declares views among other things.

    Examples
    --------
    >>> from gramless.papers.experiments import History
    >>> History(y="residual", log_y=True).x
    'n_iter'
    """

    y: str = "error"
    x: str = "n_iter"
    series: tuple[str, ...] = ()
    facet: str | None = None
    log_x: bool = False
    log_y: bool = False
    title: str = ""


@dataclass(frozen=True)
class Curve:
    """Mean and standard deviation of a metric over the seeds, against one parameter.

    Parameters
    ----------
    x : str
        The parameter.
    y : str
        The metric.
    series : tuple of str
        Parameters whose values name the lines; those that vary when empty.
    facet : str, optional
        A parameter with one chart for each of its values.
    log_x : bool
        Whether the first axis is logarithmic.
    log_y : bool
        Whether the second axis is logarithmic.
    title : str
        Of the figure; made from the keys when empty.

    See Also
    --------
    Spec : Declares views among other things.

    Examples
    --------
    >>> from gramless.papers.experiments import Curve
    >>> Curve("budget", "accuracy").y
    'accuracy'
    """

    x: str
    y: str = "error"
    series: tuple[str, ...] = ()
    facet: str | None = None
    log_x: bool = False
    log_y: bool = False
    title: str = ""


@dataclass(frozen=True)
class Table:
    """One row per point of the grid: ours, the paper's where it gives one, and the difference.

    Parameters
    ----------
    metrics : tuple of str
        The columns.
    rows : tuple of str
        Parameters that name a row; those that vary when empty.
    title : str
        Of the table.

    See Also
    --------
    Spec : Declares views among other things.

    Examples
    --------
    >>> from gramless.papers.experiments import Table
    >>> Table(("error",)).metrics
    ('error',)
    """

    metrics: tuple[str, ...] = ("error", "seconds", "peak_mb")
    rows: tuple[str, ...] = ()
    title: str = ""


@dataclass(frozen=True)
class Confusion:
    """The confusion matrix of one fit: the headline's, or the best of those that `where` allows.

    Parameters
    ----------
    where : mapping
        Grid parameters that the fit must have.
    title : str
        Of the figure.

    See Also
    --------
    Spec : Declares views among other things.

    Examples
    --------
    >>> from gramless.papers.experiments import Confusion
    >>> Confusion({"solver": "cg"}).where
    {'solver': 'cg'}
    """

    where: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""


@dataclass(frozen=True)
class Gallery:
    """Misclassified test images of one fit, chosen as for `Confusion`, with true and predicted label.

    Parameters
    ----------
    where : mapping
        Grid parameters that the fit must have.
    limit : int
        At most so many images.
    title : str
        Of the figure.

    See Also
    --------
    Spec : Declares views among other things.

    Examples
    --------
    >>> from gramless.papers.experiments import Gallery
    >>> Gallery(limit=20).limit
    20
    """

    where: Mapping[str, Any] = field(default_factory=dict)
    limit: int = 60
    title: str = ""


@dataclass(frozen=True)
class Pictures:
    """Small pictures that ``extras`` left in the record, such as the atoms of a dictionary.

    Parameters
    ----------
    key : str
        Their name in the record's ``pictures``.
    title : str
        Of the figure.
    where : mapping
        Grid parameters that the fit must have.
    captions : bool
        Whether each picture is shown with its caption, and larger.

    See Also
    --------
    Spec : Declares views among other things.

    Examples
    --------
    >>> from gramless.papers.experiments import Pictures
    >>> Pictures("atoms", "The atoms").key
    'atoms'
    """

    key: str
    title: str
    where: Mapping[str, Any] = field(default_factory=dict)
    captions: bool = True


View = History | Curve | Table | Confusion | Gallery | Pictures
