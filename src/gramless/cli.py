"""The `gramless` command: arguments in, words and exit codes out. What the commands do is in
`gramless.program`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gramless._version import __version__

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Kernel machines for data too large for a Gram matrix.",
)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines; words go to stderr.")]


def documents(incomplete: str) -> list[str]:
    """Completions for the name of a document."""
    from gramless.experiments.registry import DOCUMENTS

    return [name for name in (*DOCUMENTS, "all") if name.startswith(incomplete)]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Kernel machines for data too large for a Gram matrix."""


@app.command()
def reproduce(
    document: Annotated[
        str,
        typer.Argument(help="randomized, budget, risvo, prototypes, smo or all.", autocompletion=documents),
    ] = "all",
    quick: Annotated[bool, typer.Option("--quick", help="Embedded digits: no files, under two minutes.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the results and the report.")] = Path("gramless-report"),
    data: Annotated[Path | None, typer.Option(help="Folder with the datasets.", exists=True, file_okay=False)] = None,
    device: Annotated[str | None, typer.Option(help="Where to compute: cpu, cuda, ...")] = None,
    only: Annotated[str | None, typer.Option(help="Run just the experiment of this name.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget earlier results in the folder.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run the documents' experiments and write a report. A run that was stopped continues where it was."""
    from gramless.program.reproduce import reproduce as work

    console = Console(stderr=as_json)
    outcome = work(document, quick=quick, out=out, data=data, device=device, only=only, fresh=fresh, console=console)
    if as_json:
        typer.echo(json.dumps(outcome.as_json()))
    for line in outcome.words():
        console.print(line, highlight=False, soft_wrap=True)
    raise typer.Exit(outcome.exit_code())


def main() -> None:
    """Run the program; errors that are not defects end in one sentence and an exit code."""
    from gramless.program.errors import explain

    try:
        app()
    except (Exception, KeyboardInterrupt) as reason:
        explained = explain(reason)
        if explained is None:
            raise
        sentence, code = explained
        Console(stderr=True).print(f"[bold red]gramless:[/bold red] {sentence}", soft_wrap=True, highlight=False)
        sys.exit(code)


if __name__ == "__main__":
    main()
