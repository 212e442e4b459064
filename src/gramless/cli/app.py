"""The `gramless` command: arguments, output and exit codes. Other modules of `gramless.cli` implement the commands."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand

from gramless._version import __version__
from gramless.cli.display import messages
from gramless.cli.errors import EXIT_INTERRUPTED, EXIT_PARTLY_FAILED, InputError, explain, is_pictures
from gramless.cli.options import (
    AsJson,
    ModelFile,
    Port,
    PredictSettings,
    ReproduceSettings,
    ServeSettings,
    TrainSettings,
    existing_file,
    options_of,
)

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Kernel machines for data too large for a Gram matrix.",
)


class _Command(TyperCommand):
    """Command that prints its result as JSON if `--json` is given, and ends with the exit code of a run of experiments."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            if ctx.params.get("as_json"):
                typer.echo(json.dumps(result))
            sys.stdout.flush()
        except BrokenPipeError:
            # A reader such as `head` has closed the pipe: discard further output, including output flushed at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return None
        if isinstance(result, dict) and result.get("interrupted"):
            raise typer.Exit(EXIT_INTERRUPTED)
        if isinstance(result, dict) and result.get("failed"):
            raise typer.Exit(EXIT_PARTLY_FAILED)
        return result


class _ModelCommand(_Command):
    """Command that imports slow packages after its arguments were checked; `main` passes the importing function as `obj`.

    `began` in `ctx.meta` is the time of `time.perf_counter` before these imports.
    """

    def invoke(self, ctx: Any) -> Any:
        ctx.meta["began"] = time.perf_counter()
        if ctx.obj is not None:
            ctx.obj()
        return super().invoke(ctx)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Kernel machines for data too large for a Gram matrix."""


@app.command(cls=_ModelCommand)
@options_of(TrainSettings)
def train(ctx: typer.Context, settings: TrainSettings, as_json: AsJson = False) -> dict[str, Any]:
    """Fit a model to a table, or to a folder of pictures, score it on held-out rows, and save it."""
    model: Any
    if settings.data.is_dir():
        from gramless.cli.pictures import train_pictures

        model = train_pictures(settings, messages(stderr=as_json))
    else:
        from gramless.cli.train import train as train_table

        model = train_table(settings, messages(stderr=as_json), ctx.meta["began"])
    return {"model": str(settings.out), **model.about}


@app.command(cls=_ModelCommand)
@options_of(PredictSettings)
def predict(settings: PredictSettings, as_json: AsJson = False) -> dict[str, Any]:
    """Predict the rows of a file, in batches so that the file may be larger than memory, or predict pictures."""
    if as_json and settings.out is None:
        raise InputError("--json needs --out, because predictions are written to standard output otherwise")
    from gramless.cli.predict import predict as write_predictions

    return write_predictions(settings, messages(stderr=True))


@app.command(cls=_ModelCommand)
def evaluate(
    model: ModelFile,
    data: Annotated[
        Path, typer.Argument(help="Table with targets, or a folder with one subfolder of pictures for each class.")
    ],
    target: Annotated[
        str | None, typer.Option(help="Column with the targets; the default is the target of training.")
    ] = None,
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Score a saved model on a file with targets, or on a folder of pictures."""
    if target is not None and is_pictures(data):
        raise InputError("--target is for tables: the class of a picture is the name of its subfolder")
    from gramless.cli.predict import evaluate as evaluate_model

    return evaluate_model(model, data, target, messages(stderr=as_json))


@app.command(cls=_ModelCommand)
def info(
    model: Annotated[Path | None, typer.Argument(help="Model file to describe.", parser=existing_file)] = None,
    rows: Annotated[
        int | None, typer.Option(help="Also show the automatic choices for a table with this number of rows.", min=2)
    ] = None,
    columns: Annotated[int | None, typer.Option(help="Number of columns of the table.", min=1)] = None,
    classes: Annotated[int, typer.Option(help="Number of classes of the target.", min=2)] = 2,
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Describe a model file; without one, show devices, memory, versions, and automatic choices for a table size."""
    from gramless.cli import info as commands

    console = messages(stderr=as_json)
    return commands.info(rows, columns, classes, console) if model is None else commands.model_info(model, console)


@app.command(cls=_ModelCommand)
@options_of(ServeSettings)
def serve(settings: ServeSettings) -> None:
    """Serve models over HTTP: POST /predict accepts rows as JSON or CSV; / is a page with a form.

    If the environment variable GRAMLESS_TOKEN is set, requests must send it as "Authorization: Bearer ...". SIGHUP reloads
    the files without losing a request; SIGTERM stops the server after the running requests are answered.
    """
    from gramless.cli.serve import serve_models

    serve_models(settings, messages(stderr=True))


@app.command(cls=_ModelCommand)
def export(
    model: ModelFile,
    out: Annotated[Path, typer.Argument(help="ONNX file to write.")],
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Write a model as ONNX: preprocessing, prediction, labels and probabilities, with standard operators only."""
    from gramless.cli.info import export as export_model

    return export_model(model, out, messages(stderr=as_json))


@app.command(cls=_ModelCommand)
def demo(
    port: Port = 8000,
    data: Annotated[
        Path | None, typer.Option(help="Folder with mnist.npz; the folder in $GRAMLESS_DATA is searched too.")
    ] = None,
) -> None:
    """Serve a local page on which a user draws a digit and a model classifies it."""
    from gramless.cli.serve import demo as serve_demo

    serve_demo(port, data, messages(stderr=True))


@app.command(cls=_Command)
@options_of(ReproduceSettings)
def reproduce(settings: ReproduceSettings, as_json: AsJson = False) -> Any:
    """Run the papers' experiments and write a report. A run that was interrupted is resumed."""
    from gramless.cli import reproduce as commands

    console = Console(stderr=as_json)
    return (commands.list_experiments if settings.show else commands.reproduce)(settings, console)


@app.command(cls=_Command)
def report(
    results: Annotated[list[Path], typer.Argument(help="Files results.jsonl of one or more runs.")],
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
    benchmarks: Annotated[
        Path | None, typer.Option(help="Folder with benchmark records, for a chapter on other packages.", exists=True)
    ] = None,
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Write the report of earlier runs from their records."""
    from gramless.cli.reproduce import redraw

    return redraw(results, out, benchmarks=benchmarks, console=Console(stderr=as_json))


def main(command: Any = app) -> None:
    """Run the command; print warnings and input errors as single messages to stderr."""
    for number, name in enumerate(("stdout", "stderr"), start=1):
        if getattr(sys, name) is None:  # closed by the parent process: discard the output
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
            with contextlib.suppress(OSError):
                os.dup2(getattr(sys, name).fileno(), number)
    warnings.showwarning = lambda message, *_, **__: _print_message("yellow", message)
    try:
        command(obj=_import_skops)
    except (Exception, KeyboardInterrupt) as reason:
        explained = explain(reason)
        if explained is None:
            raise
        sentence, code = explained
        _print_message("bold red", sentence)
        sys.exit(code)


def _print_message(style: str, sentence: Any) -> None:
    console = messages(stderr=True)
    console.print(f"[{style}]gramless:[/{style}]", end=" ")
    console.print(str(sentence), markup=False)  # "[kg]" in a column name is not a style of rich


def _import_skops() -> None:
    """Import SciPy, scikit-learn and skops without torch, CuPy and dask, for processes that `main` runs in.

    `import skops.io` lists the estimators of scikit-learn by importing all of its modules, also those that adapt the array
    libraries: 2.7 s of processor time instead of 1.1 s without the adapters (two cores at 2.5 GHz). Python treats a module
    that is None in `sys.modules` as not installed, and scikit-learn omits it. Only `main` does this, because the library
    must not change the modules of a process that it did not start.
    """
    import gc

    adapters = {f"sklearn.externals.array_api_compat.{library}" for library in ("cupy", "dask", "torch")}
    hidden = dict.fromkeys(adapters - sys.modules.keys())
    sys.modules.update(hidden)  # type: ignore[arg-type]
    gc.disable()  # the imports create hundreds of thousands of objects, which garbage collection would search repeatedly
    try:
        # skops looks up functions of scipy.special in the order of imports, so scipy.special is imported first.
        import scipy.special  # noqa: F401
        import skops.io  # noqa: F401
    finally:
        for name in hidden:
            sys.modules.pop(name)
        gc.freeze()
        gc.enable()


if __name__ == "__main__":
    main()
