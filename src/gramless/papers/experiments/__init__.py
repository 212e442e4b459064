"""The experiments of the papers: declarations, claims, and the runner that fits them.

The file `<paper>.toml` declares the heading of a paper, its experiments, the functions that the experiments name, and the
claims of the paper with the comparisons that test these claims. Functions that cannot be declared are in the module
`<paper>.py`. The shortest example is `prototypes.toml`. Rules for a new experiment:

- A table `[experiments.NAME]` has the fields of `Spec`; missing fields are copied from the experiment that `like` names.
  Each entry of `grid` is a Cartesian product, in which a list is an axis and any other value is constant. Each entry of
  `views` has the name of a view and its fields.
- `data`, `features`, `estimator`, `extras` and `pictures` name entries of `[functions]` (see `declarations.py`) or
  module-level functions of `<paper>.py`, never lambdas, because each fit runs in a separate process that receives the
  `Spec` by pickle. `data` can also name a dataset.
- A finished fit is not repeated as long as its declaration is the same (`Spec.key`). Titles, views and references can
  change without a new fit. Rename a function whose meaning changes, so that the fits that call this function are repeated.
- `quick` lists the fields that differ in the quick form of an experiment, which runs on scikit-learn's digits or on other
  data without a file. All quick forms together take a few minutes on two cores, so each quick form should take at most about
  eight seconds. `quick = false` omits a quick form that would repeat another experiment on the digits.
- Every fit has the metrics `error`, `accuracy`, `balanced_error`, `balanced_accuracy` (percent of the test rows),
  `seconds`, `predict_seconds`, `feature_seconds` and `peak_mb`, with `folds` also `cv_error` and `cv_accuracy`, and the
  metrics of `extras`. Views, references and comparisons name metrics, grid parameters and entries of the training history.
- The headline of an experiment is the mean over the seeds of one setting (grid point): `headline` if declared, else the
  setting with the lowest `cv_error`, else the setting with the lowest test error. The report states this choice.

A table `[claims.NAME]` has the texts of a claim, the cause of its verdict and a sentence that explains the cause. A table
`[[claims.NAME.comparisons]]` has the fields of a `Comparison`. The additional field `for` is a grid; each grid point gives a
comparison, with the values of the parameters in place of their names in braces. A value of the paper is written with all
printed digits: `{ printed = "97.20" }`. `claims.py` defines the tolerances. Random experiments need three or more seeds.

Run one experiment with `gramless reproduce randomized --quick --only mnist-solvers`, one of its fits by adding `--where
block_size=100 --seed 0`, and all fits that a claim needs with `gramless reproduce randomized --claim limit-kaczmarz`. Write
records of full-size runs with `--out benchmarks/results/<name>` and commit them; in a copy of the source tree without git
history, the environment variable GRAMLESS_COMMIT states the commit.
"""
