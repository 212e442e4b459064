"""Thresholds of the table models, each with its unit and origin; they do not change the predictions of a stored model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True)
class TablesTuning:
    """Thresholds of the hyperparameter search, the fit and the memory plan of table models."""

    # Stages of the search (see `gramless.tables.search`), chosen on the development tables of benchmarks/tables.py.
    first_rows: int = 400
    """Number of rows of the first stage, which evaluates every scaling, kernel and kernel width."""
    second_rows: int = 1500
    """Largest number of rows of the second stage."""
    most_rows: int = 20_000
    """Largest number of rows on which hyperparameters are compared."""
    single_rows: int = 4000
    """Largest number of rows of the search if `estimator` is not "table"; 12 evaluations then take about a minute."""
    families: int = 5
    """Number of families (pairs of a scaling and a kernel) that enter the second stage."""
    family_evaluations: int = 5
    """Evaluations of the coordinate search for each family in the second stage."""
    finalists: int = 6
    """Number of settings (finalists) that enter the third stage."""
    finalist_evaluations: int = 3
    """Evaluations of the coordinate search from each setting of the third stage."""
    local_finalists: int = 5
    """Number of settings that are compared on local subsets of a large table."""
    local_evaluations: int = 8
    """Evaluations of the coordinate search from each setting on local subsets: settings of a sample transfer poorly."""
    local_subsets: int = 4
    """Number of local subsets on which the best settings are compared for a large table."""
    single_evaluations: int = 12
    """Evaluations of the coordinate search if `estimator` is not "table"."""
    learned_kernels: int = 3
    """Number of kernels for which column scales are learned."""
    learning_steps: int = 8
    """Number of L-BFGS iterations that learn column scales from one half of a sample."""
    rows_per_scale: int = 12
    """Rows in each half of the sample per learned column scale, limited by `wide_learning` times the usual time."""
    wide_learning: float = 2.5
    """Factor of the time for learning column scales if a table has many columns. It allows 1.36 times as many rows, which
    lowers the log loss from 0.454 to 0.396 on a synthetic table of 6,400 x 170 with 20 relevant columns (docs/tables.md)."""
    gradient_cost: int = 5
    """Operations of one L-BFGS iteration divided by the operations of one factorisation; counted."""
    negligible_share: float = 0.25
    """Column scales learned from less than this share of the rows are treated as independent of the rows."""
    members: int = 6
    """Largest number of settings that are averaged."""
    partitioned_members: int = 3
    """Largest number of averaged settings for a table in local partitions, which become smaller with more settings. At equal
    cost, three settings instead of one lower the leave-one-out loss on "movies" by 6 %; on "bank", two lower it by 0.3 %."""
    greedy_rounds: int = 12
    """Largest number of rounds of the greedy selection of the averaged settings."""
    margin: float = 2.0
    """A setting is dropped if its loss exceeds the lowest loss by more than this number of standard errors."""
    almost_all: float = 0.75
    """A stage of the search that could use this share of the rows within its time uses all rows."""
    workers: int = 4
    """Number of settings that are evaluated in parallel, in one thread each, because the matrices are small."""
    shares: Mapping[str, float] = field(
        default_factory=lambda: MappingProxyType({"second": 0.15, "learn": 0.2, "third": 0.2, "fit": 0.45})
    )
    """Shares of the time budget for the second stage, for learning column scales, for the third stage and for the fit."""
    budget_share: float = 1.0
    """Share of the default time budget that a fit without `time_budget` may take."""
    operations_per_second: float = 2.0**36
    """Nominal speed of float64 factorisations, by which time budgets are converted to numbers of operations: the speed of
    two cores with 256-bit vector instructions, measured and rounded to a power of two. The speed of the computer is not
    measured, because the model would then depend on the load and the number of threads of the computer."""
    single_operations_per_second: float = 2.0**37
    """Nominal speed of float32 factorisations."""
    default_memory: float = 4 * 2.0**30
    """Largest number of bytes for the kernel matrices of a fit without `memory_budget`, enough for the default time budget.
    The model is therefore the same on all computers that have at least this amount of free memory."""

    # Coordinate search.
    width_step: float = 2.0
    """Factor by which a step of the coordinate search changes the kernel width."""
    C_step: float = 10**0.5
    """Factor by which a step of the coordinate search changes `C`."""
    start_C: float = 10.0
    """First value of `C` in the first stage."""
    first_C_step: float = 10.0
    """Factor between consecutive values of `C` in the first stage."""
    smallest_C: float = 1e-3
    largest_C: float = 1e6

    # Fit and memory.
    reweightings: int = 5
    """Number of further fits with updated row weights for an absolute or Huber's loss; later updates are small."""
    retries: int = 6
    """Number of attempts to factor a matrix, each with a ridge ten times as large as before."""
    smallest_part: int = 500
    """Fewest rows of a local partition: smaller partitions lose accuracy and save no time."""
    scored_rows: int = 100_000
    """Number of rows whose scores are computed at a time."""
    table_copies: int = 10
    """Number of arrays of the size of the table, counted: encoded, imputed, transformed, five scalings, sorted."""
    stored_settings: int = 250
    """Number of settings whose predictions a search stores; counted."""
    score_columns: int = 8
    """Number of arrays of targets, scores and predictions of all rows that exist at the same time; counted."""

    # Models for `estimator` other than "table".
    exact_rows: int = 20_000
    """Largest number of rows for which `estimator="auto"` with given hyperparameters fits `LSSVC` or `LSSVR`."""
    landmarks: int = 3000
    """Number of landmarks of `NystromLSSVC` or `NystromLSSVR`."""
    float32_rows: int = 5000
    """Rows above which an `estimator` other than "table" uses float32: half the memory at equal accuracy."""

    # Explanations.
    background_rows: int = 100
    """Number of training rows that a model stores; explanations take the values of columns outside a subset from them."""
    explained_rows: int = 50
    """Number of rows over which the importance of columns is averaged."""
    importance_samples: int = 8
    """Background rows for each explained row when importance is averaged, which averages out the errors of single rows."""

    @property
    def matrices(self) -> int:
        """Number of matrices of the size of the kernel matrix in a search: one per finalist and one factor per thread."""
        return self.finalists + self.workers


TUNING = TablesTuning()
# Thresholds of `preset="fast"`, which takes a fifth of the default time budget: half of the kernels (`FAST_KERNELS` of the
# search), fewer evaluations and smaller samples.
FAST = TablesTuning(
    first_rows=300,
    second_rows=800,
    families=3,
    family_evaluations=3,
    finalists=3,
    finalist_evaluations=2,
    local_finalists=3,
    local_evaluations=4,
    learned_kernels=1,
    learning_steps=5,
    members=2,
    partitioned_members=1,
    budget_share=0.2,
)
