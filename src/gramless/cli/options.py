"""Options of the commands: one dataclass for each command. The docstring of the dataclass is the help of the command."""

# ruff: noqa: RUF009  (`option`, `argument` and `choice` return fields of a dataclass, not values)

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, ClassVar

import typer

from gramless.cli.errors import InputError, check_share, check_writable, is_pictures, is_stream, readable


def table_or_folder(given: Any) -> Path:
    """Return the path of a readable file, of a folder or of standard input ("-"); raise `InputError` for other arguments."""
    return Path(given) if os.path.isdir(given) or str(given) == "-" else readable(given)


def output_file(given: Any) -> Path | None:
    """Return the path of an output file, or None for "-", which means standard output."""
    return None if str(given) == "-" else Path(given)


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object; messages go to stderr.")]
ModelFile = Annotated[Path, typer.Argument(help="A model that `gramless train` saved.", parser=readable, metavar="MODEL")]
Port = Annotated[int, typer.Option(help="Port to listen on; 0 selects a free port.", min=0, max=65535)]
Device = Annotated[str | None, typer.Option(help="Device of the computation: cpu, cuda, auto.")]


# File extensions that a model file must not have, because programs would read the file in another format.
_OTHER_FORMATS = (".pkl", ".pickle", ".joblib", ".onnx", ".pt", ".h5", ".json", ".csv", ".xlsx", ".parquet", ".html", ".zip")


def option(default: Any, help_text: str, *names: str, **settings: Any) -> Any:
    """Return a field of a dataclass of settings that is an option of a command."""
    return field(default=default, metadata={"typer": typer.Option(*names, help=help_text, **settings)})


def argument(help_text: str, **settings: Any) -> Any:
    """Return a field of a dataclass of settings that is a positional argument of a command."""
    return field(metadata={"typer": typer.Argument(help=help_text, **settings)})


def choice(default: str | None, what: str, help_text: str, *names: str) -> Any:
    """Return an option of a command that accepts only the given names, and completes them in the shell."""

    def parse(given: str) -> str:
        if given not in names:
            raise InputError(f"unknown {what} {given!r}; known are {', '.join(names)}")
        return given

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return option(default, help_text, parser=parse, metavar="NAME", autocompletion=complete)


def parse_seconds(text: Any) -> float:
    """Return the seconds of a time that is written as "90", "90s", "2m" or "1h"."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1.0)
    try:
        seconds = float(number) * unit
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InputError(f"{text!r} is not a time: write a time such as 90s, 2m or 1h")
    return seconds


@dataclass(frozen=True)
class TrainSettings:
    """Fit a model to a table, or to a folder of pictures, score it on held-out rows, and save it."""

    panels: ClassVar = {
        "Rows and columns": ("task", "weights", "groups", "order", "columns", "drop", "class_weight"),
        "Model": ("estimator", "kernel", "C", "gamma", "tune", "preset", "proba", "time", "loss"),
        "Scores": ("test_size", "test", "cv", "interval", "metric", "importance", "refit", "report"),
    }
    """Headings of the help text, and the options below each heading."""

    data: Path = argument(
        "CSV, Parquet, Excel, Feather, JSON-lines, svmlight or npz file, - for standard input, or a folder of pictures.",
        parser=table_or_folder,
        metavar="DATA",
    )
    target: str | None = option(None, "The column to predict; not needed for npz and svmlight files.")
    out: Path = option(Path("model.skops"), "Model file to write.")
    estimator: str = choice(
        "auto",
        "estimator",
        "table (selects all settings), lssvm, nystrom, svm, or auto, which is table unless C, gamma, --tune none or a "
        "device other than cpu is given.",
        *("auto", "table", "lssvm", "nystrom", "svm"),
    )
    kernel: str | None = choice(
        None,
        "kernel",
        "rbf, laplacian, exponential, matern32, matern52, poly or linear; selected if not given.",
        *("rbf", "laplacian", "exponential", "matern32", "matern52", "poly", "linear"),
    )
    C: float | None = option(None, "Inverse regularisation; tuned if not given.", "--C")
    gamma: float | None = option(None, "Coefficient of the kernel; tuned if not given.")
    tune: str = choice("loo", "tuning method", "Tuning method: loo (closed-form leave-one-out) or none.", "loo", "none")
    preset: str = choice(
        "default", "preset", "Amount of search: default, or fast (a fifth of the time budget).", "default", "fast"
    )
    task: str = choice(
        "auto", "task", "Kind of target: auto, classification or regression.", "auto", "classification", "regression"
    )
    proba: bool | None = option(
        None,
        "Fit calibrated probabilities; the default except for svm, where probabilities take five additional fits.",
        "--proba/--no-proba",
        show_default=False,
    )
    test_size: float = option(0.2, "Fraction of the rows that are held out for the score.")
    test: Path | None = option(None, "Score on the rows of this file, and train on all rows of DATA.")
    cv: int | None = option(None, "Score by cross-validation with this many folds; train on all rows.", min=2)
    weights: str | None = option(None, "Column with the weights of the rows.")
    groups: str | None = option(None, "Column of group labels; rows of a group are held out together.")
    order: str | None = option(None, "Column, such as a date, whose last rows are held out.")
    columns: list[str] | None = option(None, "Columns to use, such as a,b,c; can be repeated.")
    drop: list[str] | None = option(None, "Columns not to use, such as a,b,c; can be repeated.")
    class_weight: str | None = option(None, "balanced (inverse class frequencies), or weights such as yes=5,no=1.")
    time: float | None = option(
        None,
        "Time limit of the whole command, such as 90s or 2m; by default the fit takes about a minute for 50,000 rows.",
        parser=parse_seconds,
        metavar="TIME",
    )
    interval: float | None = option(None, "Measure prediction intervals, or sets of classes, of this coverage, such as 0.9.")
    loss: str = choice(
        "auto",
        "loss",
        "Loss of the fit to a quantity: auto, squared_error, or for targets with outliers absolute_error or huber.",
        *("auto", "squared_error", "absolute_error", "huber"),
    )
    metric: str | None = choice(
        None,
        "metric",
        "Metric of the importance of columns, which the summary of the scores shows first: log-loss (the default for "
        "classes), average-precision, roc-auc, accuracy, balanced-accuracy; r2 (default for quantities), rmse or mae.",
        *("log-loss", "average-precision", "roc-auc", "accuracy", "balanced-accuracy", "r2", "rmse", "mae"),
    )
    importance: bool = option(
        True, "Measure the importance of columns after saving the model.", "--importance/--no-importance"
    )
    refit: bool = option(True, "Fit the saved model to all rows after scoring it on held-out rows.", "--refit/--no-refit")
    report: bool = option(False, "Also write an HTML report: importance, dependence, calibration.", "--report")
    seed: int = option(0, "Random seed for the selection of held-out rows and for the fit.", min=0, max=2**32 - 1)
    device: Device = None
    memory_budget: str | None = option(None, "Upper bound on the memory, such as 4GB.", "--memory", "--memory-budget")
    as_json: AsJson = False
    began: float = field(default_factory=perf_counter)
    """Start of the command as a value of `time.perf_counter`; the option `time` counts from this start."""

    def check(self) -> None:
        """Raise `InputError` for files that cannot be used and options that contradict each other."""
        check_share("--test-size", self.test_size)
        check_share("--interval", self.interval)
        if self.interval is not None and self.cv is not None:
            raise InputError("--interval is measured on held-out rows, which --cv does not have: leave out --cv")
        if self.test is not None and self.cv is not None:
            raise InputError("--test and --cv are two methods to score: choose one")
        for_pictures = ("data", "out", "C", "test_size", "seed", "device", "memory_budget", "as_json", "began")
        for one in fields(self) if self.data.is_dir() else ():
            if one.name not in for_pictures and getattr(self, one.name) != one.default:
                name = one.name.replace("_", "-")
                raise InputError(
                    f"--{name} does not apply to a folder of pictures: leave it out, or give the name of a table"
                )
        check_writable(self.out, self.data)
        if self.out.suffix.lower() in _OTHER_FORMATS:
            raise InputError(f"a model is saved as a skops file, which {self.out} is not: name it {self.out.stem}.skops")


@dataclass(frozen=True)
class PredictSettings:
    """Predict the rows of a file, in batches so that the file may be larger than memory, or predict pictures."""

    model: ModelFile
    data: Path = argument("Table (may have further columns), - for standard input, a picture, or a folder of pictures.")
    proba: bool = option(False, "Also write the probability of each class.", "--proba")
    interval: float | None = option(None, "Also write intervals of this coverage, such as 0.9.")
    classes: float | None = option(None, "Also write sets of classes of this coverage.", "--set")
    out: Path | None = option(
        None,
        "CSV, Parquet, Excel or JSON-lines file; if not given or -, CSV to standard output. Labels are not escaped: a "
        "spreadsheet may interpret a label that begins with = as a formula.",
        parser=output_file,
        metavar="PATH",
    )
    novelty: bool = option(
        False, "Also write why a row is unlike the training rows: value out of range, unseen category, far.", "--novelty"
    )
    keep: bool = option(False, "Also write the columns of the input.", "--keep")
    as_json: AsJson = False

    def check(self) -> None:
        """Raise `InputError` for files that cannot be used and for options that do not apply to the input or the output."""
        if self.as_json and self.out is None:
            raise InputError("--json needs --out, because predictions are written to standard output otherwise")
        check_share("--interval", self.interval)
        check_share("--set", self.classes)
        if is_pictures(self.data) and self.keep:
            raise InputError("--keep is for tables: the output for pictures has their paths already")
        if is_pictures(self.data) and (self.interval is not None or self.classes is not None or self.novelty):
            raise InputError("--interval, --set and --novelty are for tables, not for pictures")
        if self.out is not None and not is_stream(self.out):
            check_writable(self.out, self.model, self.data)


@dataclass(frozen=True)
class EvaluateSettings:
    """Score a saved model on a file with targets, or on a folder of pictures."""

    model: ModelFile
    data: Path = argument("Table with targets, or a folder with one subfolder of pictures for each class.")
    target: str | None = option(None, "Column with the targets; the default is the target of training.")
    as_json: AsJson = False


@dataclass(frozen=True)
class InfoSettings:
    """Describe a model file; without a file, show devices, memory, versions, and automatic choices for a table size."""

    model: Annotated[Path | None, typer.Argument(help="Model file to describe.", parser=readable)] = None
    rows: int | None = option(None, "Also show the automatic choices for a table with this number of rows.", min=2)
    columns: int = option(100, "Number of columns of the table.", min=1)
    classes: int = option(2, "Number of classes of the target.", min=2)
    as_json: AsJson = False


@dataclass(frozen=True)
class ExportSettings:
    """Write a model as ONNX: preprocessing, prediction, labels and probabilities, with standard operators only."""

    model: ModelFile
    out: Path = argument("ONNX file to write.")
    as_json: AsJson = False


@dataclass(frozen=True)
class DemoSettings:
    """Serve a local page on which a user draws a digit and a model classifies it."""

    port: Port = 8000
    data: Path | None = option(None, "Folder with mnist.npz; the folder in $GRAMLESS_DATA is searched too.")


@dataclass(frozen=True)
class ServeSettings:
    """Serve models over HTTP: POST /predict accepts rows as JSON or CSV; / is a page with a form.

    If the environment variable GRAMLESS_TOKEN is set, requests must send "Authorization: Bearer" and the token. SIGHUP
    reloads the files without losing a request; SIGTERM stops the server after the running requests are answered.
    """

    models: list[str] = argument("Model files, as FILE or NAME=FILE; /predict uses the first model.")
    host: str = option("127.0.0.1", "Address to listen on; 127.0.0.1 is reached only from this computer.")
    port: Port = 8000
    watch: float | None = option(None, "Interval in seconds at which replaced files are detected and loaded.", min=0.1)
    max_rows: int = option(10_000, "Largest number of rows of a request.", min=1)
    max_body: int = option(16 * 2**20, "Largest number of bytes of a request.", min=1)
    max_waiting: int = option(50_000, "Largest number of rows that wait for a prediction.", min=1)
    timeout: float = option(30.0, "Largest time from a request to its response, in seconds.", min=0.01)
    threads: int = option(1, "Threads that compute a prediction; more than one is useful only for large batches.", min=1)


def papers(incomplete: str) -> list[str]:
    """Return the names of papers that begin with `incomplete`, for the completion in the shell."""
    from gramless.papers.experiments.declarations import CHAPTERS

    return [name for name in (*CHAPTERS, "all") if name.startswith(incomplete)]


@dataclass(frozen=True)
class ReproduceSettings:
    """Run the papers' experiments and write a report. A run that was interrupted is resumed."""

    paper: Annotated[
        str,
        typer.Argument(help="randomized, budget, risvo, prototypes, smo, images or all.", autocompletion=papers),
    ] = "all"
    quick: bool = option(False, "Use small datasets of scikit-learn; needs no files and takes a few minutes.", "--quick")
    out: Path = option(Path("gramless-report"), "Folder for the results and the report.")
    data: Path | None = option(None, "Folder with the datasets.", exists=True, file_okay=False)
    device: Device = None
    only: str | None = option(None, "Run only the experiment with this name.")
    where: list[str] | None = option(None, "Run only the settings with name=value for a parameter; can be repeated.")
    seed: int | None = option(None, "Run only this seed.", min=0)
    claim: str | None = option(None, "Run only the fits that this claim needs, and print the verdict on the claim.")
    show: bool = option(False, "List the experiments and their settings; run nothing.", "--list")
    fresh: bool = option(False, "Discard earlier results in the folder.", "--fresh")
    as_json: AsJson = False


@dataclass(frozen=True)
class ReportSettings:
    """Write a report from the records of earlier runs."""

    results: list[Path] = argument("Files results.jsonl of one or more runs.")
    out: Path = option(Path("report.html"), "HTML file to write.")
    benchmarks: Path | None = option(None, "Folder with benchmark records, for a chapter on other packages.", exists=True)
    as_json: AsJson = False
