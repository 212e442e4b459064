"""The `gramless` program: arguments, output and exit codes. The other modules of `gramless.cli` implement its commands."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
import sys
import warnings
from dataclasses import MISSING, fields
from typing import Annotated, Any, get_type_hints

import typer
from rich.text import Text

from gramless._version import __version__
from gramless.cli import options
from gramless.cli.display import messages
from gramless.cli.errors import EXIT_INTERRUPTED, EXIT_PARTLY_FAILED, explain

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Kernel machines for data too large for a Gram matrix.",
)
# For each command: the dataclass of its options, and the module and the function that implement the command.
_COMMANDS = {
    "train": (options.TrainSettings, "train", "train"),
    "predict": (options.PredictSettings, "predict", "predict"),
    "evaluate": (options.EvaluateSettings, "predict", "evaluate"),
    "info": (options.InfoSettings, "info", "info"),
    "serve": (options.ServeSettings, "serve", "serve_models"),
    "export": (options.ExportSettings, "info", "export"),
    "demo": (options.DemoSettings, "serve", "demo"),
    "reproduce": (options.ReproduceSettings, "reproduce", "reproduce"),
    "report": (options.ReportSettings, "reproduce", "redraw"),
}
# Commands that print messages to stderr: `predict` writes predictions to stdout, and the servers run until they are stopped.
_MESSAGES_TO_STDERR = ("predict", "serve", "demo")
# Commands that read no model file and therefore do not need the slow imports of `_import_skops`.
_WITHOUT_MODELS = ("reproduce", "report")


def _add_command(name: str, settings: Any, module: str, function: str) -> None:
    """Add a command with one option for each field of the dataclass `settings`, except fields with a default factory.

    The docstring of the dataclass is the help text of the command. With `--json`, the command prints its result as JSON.
    After the arguments were checked, the command calls the function `obj` of its context, which imports slow packages.
    """
    types = get_type_hints(settings, include_extras=True)
    panel_of = {name: panel for panel, names in getattr(settings, "panels", {}).items() for name in names}
    parameters = [inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    for one in fields(settings):
        kind, default = types[one.name], inspect.Parameter.empty if one.default is MISSING else one.default
        if one.metadata:
            declared = one.metadata["typer"]
            declared.rich_help_panel = panel_of.get(one.name)
            kind = Annotated[kind, declared]
        if one.default_factory is MISSING:
            parameters.append(inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind))

    def command(ctx: typer.Context, **given: Any) -> None:
        chosen, as_json = settings(**given), given.get("as_json", False)
        if ctx.obj is not None and name not in _WITHOUT_MODELS:
            ctx.obj()
        run = getattr(importlib.import_module(f"gramless.cli.{module}"), function)
        try:
            result = run(chosen, messages(stderr=as_json or name in _MESSAGES_TO_STDERR))
            if as_json:
                typer.echo(json.dumps({"model": str(chosen.out), **result.about} if name == "train" else result))
            sys.stdout.flush()
        except BrokenPipeError:
            # The program that reads the output, such as `head`, has closed the pipe: discard further output, also at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return
        if isinstance(result, dict) and result.get("interrupted"):
            raise typer.Exit(EXIT_INTERRUPTED)
        if isinstance(result, dict) and result.get("failed"):
            raise typer.Exit(EXIT_PARTLY_FAILED)

    command.__doc__ = settings.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    app.command(name)(command)


for _name, _declared in _COMMANDS.items():
    _add_command(_name, *_declared)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Kernel machines for data too large for a Gram matrix."""


def main(command: Any = app) -> None:
    """Run the program, and print each warning and each input error as one message to stderr."""
    for number, name in enumerate(("stdout", "stderr"), start=1):
        if getattr(sys, name) is None:  # the parent process closed the stream: discard the output
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
    # `Text`, because rich would interpret a part of a string such as "[kg]" in a column name as a style.
    messages(stderr=True).print(f"[{style}]gramless:[/{style}]", Text(str(sentence)))


def _import_skops() -> None:
    """Import SciPy, scikit-learn and skops without importing torch, CuPy and dask.

    `import skops.io` imports all modules of scikit-learn. This takes 2.7 s of processor time, but 1.1 s without the adapters
    of scikit-learn for these libraries (two cores at 2.5 GHz). Python treats a module that is None in `sys.modules` as not
    installed, so scikit-learn skips the adapters. Only this program hides the adapters, because the library must not change
    the modules of a process that it did not start.
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
