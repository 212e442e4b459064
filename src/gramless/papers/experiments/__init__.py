"""The experiments of the papers: declarations, claims, and the runner that fits them.

Each paper has one file (`randomized.py`, `budget.py`, `risvo.py`, `prototypes.py`, `smo.py`) with a tuple `SPECS` of
experiments and a tuple `CLAIMS` of the statements of the paper and the comparisons that test them. The shortest example is
`prototypes.py`. Rules for a new experiment:

- `data`, `features`, `estimator`, `extras` and `pictures` are module-level functions, never lambdas, and grid values are
  plain JSON: each fit runs in a separate process that receives the `Spec` by pickle.
- The texts of the report (titles, labels, descriptions, statements of claims and reasons of verdicts) can be in
  `<paper>.toml`: `experiment` and `read_claims` read them from there.
- A finished fit is not repeated as long as its declaration is the same (`Spec.key`). Titles, views and references can
  change; rename a function whose meaning changes.
- `quick` lists the fields of the quick form, which runs on scikit-learn's digits unless it names other data without a file.
  All quick forms together take a few minutes on two cores: stay below about eight seconds per experiment. `quick=None`
  omits an experiment that would repeat another one on the digits.
- Every fit has the metrics `error`, `accuracy`, `balanced_error`, `balanced_accuracy` (percent of the test rows),
  `seconds`, `predict_seconds`, `feature_seconds` and `peak_mb`; `cv_error` and `cv_accuracy` with `folds`; and those of
  `extras`. Views, references and comparisons refer to metrics, grid parameters and entries of the history by name.
- The headline of an experiment is the mean over the seeds of one setting: `headline`, else the setting with the lowest
  `cv_error`, else the setting with the lowest test error, which the report then states.

Every claim has a cause of its verdict and a sentence that explains it; `claims.py` defines the tolerances. A printed value
is `Printed("97.20")`, with its digits. Experiments with random choices need at least three seeds.

Run one experiment with `gramless reproduce randomized --quick --only mnist-solvers`, one fit of it with `--where
block_size=100 --seed 0`, and all that one claim needs with `gramless reproduce randomized --claim limit-kaczmarz`. Records
of full-size runs are written with `--out benchmarks/results/<name>` and committed; in a copy of the source tree without git
history, the environment variable GRAMLESS_COMMIT states the commit.
"""

from gramless.papers.experiments.claims import Cause, Claim, Comparison, Printed
from gramless.papers.experiments.registry import (
    CHAPTERS,
    PAPERS,
    Paper,
    claim_named,
    claims,
    records_of,
    specs,
    specs_of_claim,
)
from gramless.papers.experiments.results import FIELDS, Results, ResultsError
from gramless.papers.experiments.runner import Event, run
from gramless.papers.experiments.spec import (
    Confusion,
    Curve,
    Gallery,
    History,
    Pictures,
    Reference,
    Spec,
    Table,
    View,
    product,
)

# fmt: off
__all__ = [
    "CHAPTERS", "FIELDS", "PAPERS", "Cause", "Claim", "Comparison", "Confusion", "Curve", "Event", "Gallery", "History",
    "Paper", "Pictures", "Printed", "Reference", "Results", "ResultsError", "Spec", "Table", "View", "claim_named", "claims",
    "product", "records_of", "run", "specs", "specs_of_claim",
]
# fmt: on
