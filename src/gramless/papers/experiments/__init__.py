"""The papers' experiments as declarations, and the runner that fits them.

How to add an experiment
------------------------
Each paper has one file here (`randomized.py`, `budget.py`, `risvo.py`, `prototypes.py`, `smo.py`) that
ends with a tuple ``SPECS``. An experiment is one `Spec` in that tuple. A complete one::

    from gramless.papers.experiments.spec import Reference, Spec, product
    from gramless.papers.experiments.views import Confusion, Gallery, History, Table


    def unit_vectors(params, seed):                # a function of one point of the grid, and the seed
        from gramless.images import UnitNormalizer # heavy or optional imports go inside

        return UnitNormalizer()


    def machine(params, seed):
        from gramless import LSSVC
        from gramless.linalg.solvers import SOLVERS

        settings = {"block_size": params["block_size"], "max_iter": params["max_iter"], "tol": 1e-6}
        solver = SOLVERS[params["solver"]](**settings)
        return LSSVC(kernel="poly", degree=4, gamma=1.0, C=1e4, solver=solver, random_state=seed)


    SPECS = (
        Spec(
            paper="randomized",
            name="mnist-solvers",
            title="Error against iteration",       # without the data, which `on` names: the quick form has other data
            on="MNIST",
            about="How fast each solver comes down.",  # true of any data
            finding="Four passes reach 1.2 %.",    # about this data; the quick form leaves it out
            data="mnist",                          # or a function of the seed that returns a Dataset
            features=unit_vectors,
            estimator=machine,
            grid=product(solver=["kaczmarz", "matching_pursuit"], block_size=[500, 2000], max_iter=[120]),
            evaluate_every=1,                      # the test error goes into the history
            views=(
                History(series=("block_size",), facet="solver"),
                Table(rows=("solver", "block_size")),
                Confusion(where={"solver": "matching_pursuit"}),
                Gallery(),
            ),
            headline={"solver": "matching_pursuit", "block_size": 2000},
            chosen="the paper's setting",          # how, without the test rows
            paper_says=(Reference(1.1, "Fig. 2(c)", {"solver": "matching_pursuit"}, spread=0.02),),
            quick={"grid": product(solver=["kaczmarz"], block_size=[100, 300], max_iter=[20])},
        ),
    )

What the paper claims stands beside it, in ``CLAIMS``::

    CLAIMS = (
        Claim(
            "Matching pursuit converges faster than Kaczmarz.",
            "Section 4.1, Fig. 2(c)",
            (Comparison("mnist-solvers", {"solver": "matching_pursuit"}, "below", {"solver": "kaczmarz"}, StepsTo(1.5),
                        along="block_size", within=0),),
        ),
    )

What to know:

- ``quick`` replaces fields of the spec; its data is scikit-learn's digits (8 x 8, pixels 0 to 16) unless it
  names others that need no file, in ``data`` and in ``on``. All quick forms together take a few minutes on two cores: stay
  within some eight seconds per experiment, and count about a tenth of a second per fit for its process. Choose the
  quick grid for what it shows.
- ``quick=None`` leaves an experiment out of quick runs, where on the digits it would only repeat another one.
- Functions are module-level, never lambdas: each fit runs in a process of its own and gets the spec by
  pickle.
- Grid values are plain JSON. Build kernels and other objects in the functions.
- A fit is known by a hash of what is declared (`Spec.key`); editing titles, views and references costs no
  refit. When the *meaning* of a function changes, rename it or start a new results file.
- Metrics of every fit: ``error``, ``accuracy``, ``balanced_error``, ``balanced_accuracy`` (percent, test
  half), ``seconds`` (the fit, evaluation excluded), ``predict_seconds``, ``feature_seconds``, ``peak_mb``
  (peak resident memory during fit and predict, of a process that did nothing else); ``cv_error``,
  ``cv_accuracy`` with ``folds=5``; whatever ``extras`` returns. ``history`` is the estimator's `history_`.
  Views and references name any of these.
- `Dataset` has ``only([3, 8])``, ``head(per_class)``, ``sample(n)``, ``resplit(test_size, seed=...)`` and
  ``pooled()``.
- The headline of an experiment is the mean and the standard deviation over the seeds of one setting: ``headline``, or the
  one with the least ``cv_error``, or else the one with the least mean test error, which the page then says.
- Run one while working on it: ``gramless reproduce randomized --quick --only mnist-solvers``; one fit of it with
  ``--where block_size=100 --seed 0``. Full-size results are committed with ``--out benchmarks/results/<name>``, and
  ``gramless report benchmarks/results/*/results.jsonl`` draws their page again.
"""

from gramless.papers.experiments.claims import Claim, Comparison
from gramless.papers.experiments.registry import CHAPTERS, PAPERS, Paper, claims, specs
from gramless.papers.experiments.results import FIELDS, Results, ResultsError
from gramless.papers.experiments.runner import Event, run
from gramless.papers.experiments.spec import Reference, Spec, product
from gramless.papers.experiments.views import Confusion, Curve, Gallery, History, Pictures, Table, View

__all__ = [
    "CHAPTERS",
    "FIELDS",
    "PAPERS",
    "Claim",
    "Comparison",
    "Confusion",
    "Curve",
    "Event",
    "Gallery",
    "History",
    "Paper",
    "Pictures",
    "Reference",
    "Results",
    "ResultsError",
    "Spec",
    "Table",
    "View",
    "claims",
    "product",
    "run",
    "specs",
]
