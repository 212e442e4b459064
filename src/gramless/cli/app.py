"""The `gramless` command: arguments, output and exit codes. Other modules of `gramless.cli` implement the commands."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand

from gramless._version import __version__

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Kernel machines for data too large for a Gram matrix.",
)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object; messages go to stderr.")]


class _ModelCommand(TyperCommand):
    """Command that imports slow packages, by a function that `main` passes, only after `--help` was handled."""

    def invoke(self, ctx: Any) -> Any:
        if ctx.obj is not None:
            ctx.obj()
        return super().invoke(ctx)


def papers(incomplete: str) -> list[str]:
    """Return completions for the name of a paper."""
    from gramless.papers.experiments.registry import CHAPTERS

    return [name for name in (*CHAPTERS, "all") if name.startswith(incomplete)]


def _version(requested: bool) -> None:
    if requested:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Kernel machines for data too large for a Gram matrix."""


@app.command()
def reproduce(
    paper: Annotated[
        str,
        typer.Argument(help="randomized, budget, risvo, prototypes, smo, images or all.", autocompletion=papers),
    ] = "all",
    quick: Annotated[
        bool, typer.Option("--quick", help="Use small datasets of scikit-learn; needs no files and takes a few minutes.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for the results and the report.")] = Path("gramless-report"),
    data: Annotated[Path | None, typer.Option(help="Folder with the datasets.", exists=True, file_okay=False)] = None,
    device: Annotated[str | None, typer.Option(help="Device of the computation: cpu, cuda, ...")] = None,
    only: Annotated[str | None, typer.Option(help="Run only the experiment with this name.")] = None,
    where: Annotated[list[str] | None, typer.Option(help="Run only the settings with name=value; can be repeated.")] = None,
    seed: Annotated[int | None, typer.Option(help="Run only this seed.", min=0)] = None,
    claim: Annotated[
        str | None, typer.Option(help="Run what the claim with this name needs, and print the verdict on it.")
    ] = None,
    show: Annotated[
        bool, typer.Option("--list", help="List the experiments and their settings without running them.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard earlier results in the folder.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run the papers' experiments and write a report. A run that was interrupted is resumed."""
    from gramless.cli.reproduce import choose, listing
    from gramless.cli.reproduce import reproduce as work

    console = Console(stderr=as_json)
    narrow: dict[str, Any] = {"only": only, "where": where or (), "seed": seed, "claim": claim}
    if show:
        chosen = choose(paper, quick=quick, **narrow)
        if as_json:
            typer.echo(
                json.dumps([{"paper": s.paper, "experiment": s.name, "grid": s.grid, "seeds": s.seeds} for s in chosen])
            )
        else:
            console.print(listing(chosen))
        return
    outcome = work(paper, quick=quick, out=out, data=data, device=device, **narrow, fresh=fresh, console=console)
    if as_json:
        typer.echo(json.dumps(outcome.as_json()))
    for line in outcome.summary_lines():
        console.print(line, highlight=False, soft_wrap=True)
    raise typer.Exit(outcome.exit_code())


@app.command()
def report(
    results: Annotated[list[Path], typer.Argument(help="Files results.jsonl of one or more runs.")],
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
    benchmarks: Annotated[
        Path | None, typer.Option(help="Folder with benchmark records, for a chapter on other packages.", exists=True)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the report of earlier runs from their records."""
    from gramless.cli.reproduce import redraw

    drawn = redraw(results, out, benchmarks=benchmarks, console=Console(stderr=as_json))
    if as_json:
        typer.echo(json.dumps(drawn.as_json()))


def _choices(names: Sequence[str]) -> Callable[[str], list[str]]:
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


@app.command(cls=_ModelCommand)
def train(
    context: typer.Context,
    data: Annotated[
        Path, typer.Argument(help="CSV, Parquet, svmlight or npz file (also .gz, .bz2), or a folder of pictures.")
    ],
    target: Annotated[str | None, typer.Option(help="The column to predict; not needed for npz and svmlight files.")] = None,
    out: Annotated[Path, typer.Option(help="Model file to write.")] = Path("model.skops"),
    estimator: Annotated[
        str,
        typer.Option(
            help="auto, table (selects all settings; the choice of auto unless C, gamma, --tune none or a device "
            "other than cpu is given), lssvm, nystrom or svm.",
            autocompletion=_choices(["auto", "table", "lssvm", "nystrom", "svm"]),
        ),
    ] = "auto",
    kernel: Annotated[
        str | None,
        typer.Option(
            help="rbf, laplacian, exponential, matern32, matern52, poly or linear; selected if not given.",
            autocompletion=_choices(["rbf", "laplacian", "exponential", "matern32", "matern52", "poly", "linear"]),
        ),
    ] = None,
    C: Annotated[float | None, typer.Option("--C", help="Inverse regularisation; tuned if not given.")] = None,
    gamma: Annotated[float | None, typer.Option(help="Coefficient of the kernel; tuned if not given.")] = None,
    tune: Annotated[
        str,
        typer.Option(
            help="Tuning method: loo (closed-form leave-one-out) or none.", autocompletion=_choices(["loo", "none"])
        ),
    ] = "loo",
    task: Annotated[
        str,
        typer.Option(
            help="Kind of target: auto, classification or regression.",
            autocompletion=_choices(["auto", "classification", "regression"]),
        ),
    ] = "auto",
    proba: Annotated[
        bool | None,
        typer.Option(
            "--proba/--no-proba",
            help="Fit calibrated probabilities for `predict --proba`; the default except for svm, for which they take five "
            "additional fits.",
            show_default=False,
        ),
    ] = None,
    test_size: Annotated[float, typer.Option(help="Share of rows held out for the score.")] = 0.2,
    test: Annotated[
        Path | None, typer.Option(help="Compute scores on the rows of this file, and train on all rows of DATA.")
    ] = None,
    cv: Annotated[
        int | None,
        typer.Option(help="Compute scores by cross-validation with this number of folds, and train on all rows.", min=2),
    ] = None,
    weights: Annotated[str | None, typer.Option(help="Column with the weights of the rows.")] = None,
    groups: Annotated[
        str | None, typer.Option(help="Column of group labels; rows of a group are held out together.")
    ] = None,
    order: Annotated[
        str | None, typer.Option(help="Column that orders the rows, such as a date; the last rows are held out.")
    ] = None,
    columns: Annotated[
        list[str] | None, typer.Option(help="Use only these columns as inputs: a,b,c; can be repeated.")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Do not use these columns as inputs.")] = None,
    class_weight: Annotated[
        str | None, typer.Option(help="balanced (inverse class frequencies), or weights such as yes=5,no=1.")
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(help="Approximate time of the fit, such as 90s or 2m; the default is about a minute for 50,000 rows."),
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(
            help="Measure prediction intervals (for classes, sets) of this coverage, such as 0.9, on held-out rows."
        ),
    ] = None,
    report: Annotated[
        bool,
        typer.Option("--report", help="Also write an HTML report next to the model: importance, dependence, calibration."),
    ] = False,
    seed: Annotated[
        int, typer.Option(help="Seed of the held-out rows and of all other random choices.", min=0, max=2**32 - 1)
    ] = 0,
    device: Annotated[str | None, typer.Option(help="Device of the computation: cpu, cuda, auto.")] = None,
    memory_budget: Annotated[
        str | None, typer.Option("--memory", "--memory-budget", help="Largest memory of the fit, such as 4GB.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fit a model to a table, or to a folder of pictures, score it on held-out rows, and save it."""
    if os.path.isdir(data):
        from gramless.cli.pictures import train_pictures

        known = ("data", "out", "C", "test_size", "seed", "device", "memory_budget", "as_json")
        _reject_others(context, known, "a folder of pictures")
        on_pictures = train_pictures(
            data,
            out,
            C=C,
            test_size=test_size,
            seed=seed,
            device=device,
            memory_budget=memory_budget,
            console=Console(stderr=as_json),
        )
        if as_json:
            typer.echo(json.dumps(on_pictures.as_json()))
        return
    from gramless.cli.train import TrainSettings, parse_seconds
    from gramless.cli.train import train as work

    settings = TrainSettings(
        path=data,
        target=target,
        out=out,
        estimator=estimator,
        kernel=kernel,
        C=C,
        gamma=gamma,
        tune=tune,
        task=task,
        proba=proba,
        test_size=test_size,
        test=test,
        cv=cv,
        weights=weights,
        groups=groups,
        order=order,
        columns=columns or [],
        drop=drop or [],
        class_weight=class_weight,
        seconds=None if time is None else parse_seconds(time),
        interval=interval,
        report=report,
        seed=seed,
        device=device,
        memory_budget=memory_budget,
    )
    trained = work(settings, Console(stderr=as_json))
    if as_json:
        typer.echo(json.dumps(trained.as_json()))


def _reject_others(context: typer.Context, known: Sequence[str], what: str) -> None:
    """Raise `InputError` if an option was given that is not in `known`."""
    from gramless.cli.errors import InputError

    for name in context.params:
        source = context.get_parameter_source(name)
        if name not in known and source is not None and source.name == "COMMANDLINE":
            option = name.replace("_", "-")
            raise InputError(f"--{option} does not apply to {what}: leave it out, or give the name of a table")


@app.command(cls=_ModelCommand)
def predict(
    model: Annotated[Path, typer.Argument(help="A model that `gramless train` saved.")],
    data: Annotated[
        Path,
        typer.Argument(help="Table (may have further columns), - for standard input, a picture, or a folder of pictures."),
    ],
    proba: Annotated[bool, typer.Option("--proba", help="Also write the probability of each class.")] = False,
    interval: Annotated[
        float | None, typer.Option(help="Also write prediction intervals of this coverage, such as 0.9.")
    ] = None,
    classes: Annotated[
        float | None,
        typer.Option("--set", help="Also write sets of classes of this coverage, such as 0.9."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="CSV or Parquet file to write; if not given or -, CSV is written to standard output. Labels are not "
            "escaped: a spreadsheet may interpret a label that begins with = as a formula."
        ),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Also write the columns of the input.")] = False,
    as_json: AsJson = False,
) -> None:
    """Predict the rows of a file, in batches so that the file may be larger than memory, or predict pictures."""
    from gramless.cli.errors import InputError
    from gramless.cli.formats import is_pictures

    if as_json and out in (None, Path("-")):
        raise InputError("--json needs --out, because predictions are written to standard output otherwise")
    console = Console(stderr=True)
    if not is_pictures(data):
        from gramless.cli.predict import predict as predict_rows

        done = predict_rows(
            model, data, proba=proba, out=out, keep=keep, interval=interval, classes=classes, console=console
        )
    elif keep:
        raise InputError("--keep is for tables: the output for pictures has their paths already")
    elif interval is not None or classes is not None:
        raise InputError("--interval and --set are for tables, not for pictures")
    else:
        from gramless.cli.pictures import predict_pictures

        done = predict_pictures(model, data, proba=proba, out=out, console=console)
    if as_json:
        typer.echo(json.dumps(done.as_json()))


@app.command(cls=_ModelCommand)
def evaluate(
    model: Annotated[Path, typer.Argument(help="A model that `gramless train` saved.")],
    data: Annotated[
        Path, typer.Argument(help="Table with targets, or a folder with one subfolder of pictures for each class.")
    ],
    target: Annotated[
        str | None, typer.Option(help="Column with the targets; the default is the target of training.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Score a saved model on a file with targets, or on a folder of pictures."""
    from gramless.cli.errors import InputError
    from gramless.cli.formats import is_pictures

    console = Console(stderr=as_json)
    if not is_pictures(data):
        from gramless.cli.predict import evaluate as work

        evaluated = work(model, data, target=target, console=console)
    elif target is not None:
        raise InputError("--target is for tables: the class of a picture is the name of its subfolder")
    else:
        from gramless.cli.pictures import evaluate_pictures

        evaluated = evaluate_pictures(model, data, console=console)
    if as_json:
        typer.echo(json.dumps(evaluated.as_json()))


@app.command(cls=_ModelCommand)
def demo(
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 selects a free port.", min=0, max=65535)] = 8000,
    data: Annotated[
        Path | None, typer.Option(help="Folder with mnist.npz; the folder in $GRAMLESS_DATA is searched too.")
    ] = None,
) -> None:
    """Serve a local page on which a user draws a digit and a model classifies it."""
    from gramless.cli.demo import demo as work

    work(port, data, Console(stderr=True))


@app.command(cls=_ModelCommand)
def serve(
    models: Annotated[list[str], typer.Argument(help="Model files, as FILE or NAME=FILE; /predict uses the first model.")],
    host: Annotated[
        str, typer.Option(help="Address to listen on; 127.0.0.1 is reached only from this computer.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 selects a free port.", min=0, max=65535)] = 8000,
    watch: Annotated[
        float | None, typer.Option(help="Interval in seconds at which replaced files are detected and loaded.", min=0.1)
    ] = None,
    most_rows: Annotated[int, typer.Option("--max-rows", help="Largest number of rows of a request.", min=1)] = 10_000,
    most_body: Annotated[int, typer.Option("--max-body", help="Largest number of bytes of a request.", min=1)] = 16 * 2**20,
    most_waiting: Annotated[
        int, typer.Option("--max-waiting", help="Largest number of rows that wait for a prediction.", min=1)
    ] = 50_000,
    timeout: Annotated[
        float, typer.Option(help="Largest time from a request to its response, in seconds.", min=0.01)
    ] = 30.0,
    threads: Annotated[
        int, typer.Option(help="Threads that compute a prediction; more than one is useful only for large batches.", min=1)
    ] = 1,
) -> None:
    """Serve models over HTTP: POST /predict accepts rows as JSON or CSV; / is a page with a form.

    If the environment variable GRAMLESS_TOKEN is set, requests must send it as "Authorization: Bearer ...". SIGHUP reloads
    the files without losing a request; SIGTERM stops the server after the running requests are answered.
    """
    from gramless.cli.serve import serve_models
    from gramless.deployment.serving.limits import Limits

    limits = Limits(body_bytes=most_body, rows=most_rows, waiting_rows=most_waiting, seconds=timeout)
    serve_models(models, host=host, port=port, watch=watch, threads=threads, limits=limits, console=Console(stderr=True))


@app.command(cls=_ModelCommand)
def export(
    model: Annotated[Path, typer.Argument(help="A saved model.")],
    out: Annotated[Path, typer.Argument(help="ONNX file to write.")],
    as_json: AsJson = False,
) -> None:
    """Write a model as ONNX: preprocessing, prediction, labels and probabilities, with standard operators only."""
    from gramless.cli.export import export as work

    done = work(model, out, Console(stderr=as_json))
    if as_json:
        typer.echo(json.dumps(done))


@app.command(cls=_ModelCommand)
def info(
    model: Annotated[Path | None, typer.Argument(help="Model file to describe.")] = None,
    rows: Annotated[
        int | None, typer.Option(help="Also show the automatic choices for a table with this number of rows.", min=2)
    ] = None,
    columns: Annotated[int | None, typer.Option(help="Number of columns of the table.", min=1)] = None,
    classes: Annotated[int, typer.Option(help="Number of classes of the target.", min=2)] = 2,
    as_json: AsJson = False,
) -> None:
    """Describe a model file; without one, show devices, memory, versions, and automatic choices for a table size."""
    if model is not None:
        from gramless.cli.model_info import model_info

        card = model_info(model, Console(stderr=as_json))
        if as_json:
            typer.echo(json.dumps(card))
        return
    from gramless.cli.info import info as work

    found = work(rows, columns, classes, Console(stderr=as_json))
    if as_json:
        typer.echo(json.dumps(found))


def main() -> None:
    """Run the command; print warnings and input errors as single messages to stderr."""
    from gramless.cli.errors import explain

    for number, name in enumerate(("stdout", "stderr"), start=1):
        if getattr(sys, name) is None:  # closed by the parent process: discard the output
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
            with contextlib.suppress(OSError):
                os.dup2(getattr(sys, name).fileno(), number)
    from gramless.cli.fast_imports import import_skops

    warnings.showwarning = lambda message, *_, **__: _print_message("yellow", message)
    try:
        app(obj=import_skops)
        sys.stdout.flush()
    except BrokenPipeError:
        # A reader such as `head` has closed the pipe: discard further output, including output flushed at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (Exception, KeyboardInterrupt) as reason:
        explained = explain(reason)
        if explained is None:
            raise
        sentence, code = explained
        _print_message("bold red", sentence)
        sys.exit(code)


def _print_message(style: str, sentence: Any) -> None:
    console = Console(stderr=True)
    console.print(f"[{style}]gramless:[/{style}]", end=" ")
    # Without markup, because "[kg]" in a column name is not a style of rich.
    console.print(str(sentence), soft_wrap=True, highlight=False, markup=False)


if __name__ == "__main__":
    main()
