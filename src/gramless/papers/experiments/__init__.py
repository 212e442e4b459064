"""The experiments of the papers: declarations, claims, and the runner that fits them.

The file `<paper>.toml` declares the heading of a paper, its experiments, the functions that they name, and its claims with
the comparisons that test them. A module `<paper>.py` has functions that cannot be declared. The shortest example is
`prototypes`. Rules for a new experiment:

- A table `[experiments.NAME]` has the fields of `Spec`; fields that are missing are those of the experiment `like`. Each
  entry of `grid` is a product: a list is an axis, another value is constant. The entries of `views` name a view and its
  fields.
- `data`, `features`, `estimator`, `extras` and `pictures` name entries of `[functions]` (see `declarations.py`) or
  module-level functions of `<paper>.py`, never lambdas, because each fit runs in a separate process that receives the
  `Spec` by pickle. `data` can also name a dataset.
- A finished fit is not repeated as long as its declaration is the same (`Spec.key`). Titles, views and references can
  change; rename a function whose meaning changes.
- `quick` lists the fields of the quick form, which runs on scikit-learn's digits unless it names other data without a file.
  All quick forms together take a few minutes on two cores: stay below about eight seconds per experiment. `quick = false`
  omits an experiment that would repeat another one on the digits.
- Every fit has the metrics `error`, `accuracy`, `balanced_error`, `balanced_accuracy` (percent of the test rows),
  `seconds`, `predict_seconds`, `feature_seconds` and `peak_mb`; `cv_error` and `cv_accuracy` with `folds`; and those of
  `extras`. Views, references and comparisons refer to metrics, grid parameters and entries of the history by name.
- The headline of an experiment is the mean over the seeds of one setting: `headline`, else the setting with the lowest
  `cv_error`, else the setting with the lowest test error, which the report then states.

A table `[claims.NAME]` has the texts of a claim, the cause of its verdict and a sentence that explains it;
`[[claims.NAME.comparisons]]` have the fields of `Comparison`. `for` is a grid: each of its points gives a comparison, in
which "{name}" is replaced by the value of the point. A printed value is `{ printed = "97.20" }`, with its digits.
`claims.py` defines the tolerances. Experiments with random choices need at least three seeds.

Run one experiment with `gramless reproduce randomized --quick --only mnist-solvers`, one fit of it with `--where
block_size=100 --seed 0`, and all that one claim needs with `gramless reproduce randomized --claim limit-kaczmarz`. Records
of full-size runs are written with `--out benchmarks/results/<name>` and committed; in a copy of the source tree without git
history, the environment variable GRAMLESS_COMMIT states the commit.
"""
