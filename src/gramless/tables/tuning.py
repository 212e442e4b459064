"""Thresholds of the table models, with unit and origin; none of them changes the meaning of a model file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True)
class TablesTuning:
    """Thresholds of search, fit and memory plan of table models."""

    # Stages of the search. Chosen on the development tables of benchmarks/tables.py.
    first_rows: int = 400
    """Rows of the first stage, which tries every scaling, kernel and width."""
    second_rows: int = 1500
    """Largest number of rows of the second stage."""
    most_rows: int = 20_000
    """Largest number of rows on which settings are compared."""
    single_rows: int = 4000
    """Largest number of rows on which the settings of a single model are compared; 12 evaluations take about a minute."""
    families: int = 5
    """Families (scaling and kernel) that enter the second stage."""
    family_evaluations: int = 5
    """Evaluations of the coordinate search for each family in the second stage."""
    finalists: int = 6
    """Settings that enter the third stage."""
    finalist_evaluations: int = 3
    """Evaluations of the coordinate search for each finalist."""
    local_finalists: int = 5
    """Finalists that are compared on local subsets of a large table."""
    local_evaluations: int = 8
    """Evaluations for each of these finalists: settings of a sparse sample transfer poorly to dense local subsets."""
    local_subsets: int = 4
    """Number of local subsets."""
    single_evaluations: int = 12
    """Evaluations of the coordinate search for a single model."""
    learned_kernels: int = 3
    """Kernels for which column scales are learned."""
    learning_steps: int = 8
    """L-BFGS iterations for each half of the rows."""
    rows_per_scale: int = 12
    """Rows of each half for each learned scale, if `wide_learning` times the share of the time budget allows it."""
    wide_learning: float = 2.5
    """Factor of the time for learning the scales of many columns: 1.36 times as many rows, which lowers the log loss from
    0.454 to 0.396 on a synthetic table of 6,400 x 170 of which 20 columns matter (docs/tables.md)."""
    gradient_cost: int = 5
    """Cost of one L-BFGS iteration in factorisations, counted in operations."""
    negligible_share: float = 0.25
    """Scales learned from a smaller share of the rows are treated as independent of the rows."""
    members: int = 6
    """Largest number of settings that are averaged."""
    partitioned_members: int = 3
    """The same for a table that is divided into local partitions, which become smaller: at equal cost, the leave-one-out
    loss was 6 % lower on movies with three settings than with one, and 0.3 % lower on bank with two."""
    greedy_rounds: int = 12
    """Rounds of the greedy selection of the average."""
    margin: float = 2.0
    """Standard errors of the difference of two losses, above which the worse setting is dropped."""
    almost_all: float = 0.75
    """A stage that could use this share of the rows uses all of them."""
    workers: int = 4
    """Settings evaluated in parallel, one thread each: matrices of a sample are too small for several threads."""
    shares: Mapping[str, float] = field(
        default_factory=lambda: MappingProxyType({"second": 0.15, "learn": 0.2, "third": 0.2, "fit": 0.45})
    )
    """Shares of the time budget of the second stage, of learning scales, of the third stage and of the fit."""
    budget_share: float = 1.0
    """Share of the default time budget."""
    operations_per_second: float = 2.0**36
    """Nominal speed of float64 factorisations, by which time budgets are converted to numbers of operations: that of two
    cores with 256-bit vector instructions, measured and rounded to a power of two. The speed of the computer is not
    measured, because the model would then depend on its load and on its number of threads."""
    single_operations_per_second: float = 2.0**37
    """The same in float32."""
    default_memory: float = 4 * 2.0**30
    """Bytes that a fit without `memory_budget` uses at most, so that the model does not depend on the free memory of a
    computer that has more: enough for the default time budget."""

    # Coordinate search.
    width_step: float = 2.0
    """Factor of one move in the kernel width."""
    C_step: float = 10**0.5
    """Factor of one move in `C`."""
    start_C: float = 10.0
    """First value of `C` in the first stage."""
    first_C_step: float = 10.0
    """Factor between values of `C` in the first stage."""
    smallest_C: float = 1e-3
    largest_C: float = 1e6

    # Fit and memory.
    reweightings: int = 5
    """Further factorisations of the fit of an absolute or Huber's loss; the weights change little after a few."""
    retries: int = 6
    """Attempts to factor a matrix, each with a ridge ten times as large."""
    smallest_part: int = 500
    """Fewest rows of a local partition: smaller partitions lose accuracy and save no time."""
    scored_rows: int = 100_000
    """Rows whose scores are computed at a time."""
    table_copies: int = 10
    """Arrays of the size of the table, counted: encoded, imputed, transformed, five scalings, sorted."""
    stored_settings: int = 250
    """Settings whose predictions a search stores; counted."""
    score_columns: int = 8
    """Targets, scores and predictions of all rows that exist at the same time; counted."""

    # Single models.
    exact_rows: int = 20_000
    """Largest number of rows for which `estimator="auto"` with explicit settings fits an exact model."""
    landmarks: int = 3000
    """Landmarks of a Nystrom model."""
    float32_rows: int = 5000
    """Rows above which single models are computed in float32: half the memory, equal accuracy at the ridges of tables."""

    # Explanations.
    background_rows: int = 100
    """Training rows that a model stores, from which the values of absent columns are taken."""
    explained_rows: int = 50
    """Rows over which the importance of columns is averaged."""
    importance_samples: int = 8
    """Background rows for each of these rows: errors of single rows average out."""

    @property
    def matrices(self) -> int:
        """Number of kernel-sized matrices of a search: one per finalist and one factor per thread."""
        return self.finalists + self.workers


TUNING = TablesTuning()
# A fifth of the time budget: half of the kernels (`FAST_KERNELS` of the search), fewer evaluations, smaller samples.
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
