"""`tsucb reproduce`: the paper's experiments, each one command."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tsucb.checks import whole_number
from tsucb.cli.options import SeedOption, listed
from tsucb.paper.experiments import Claim, Experiment, reproduce
from tsucb.paper.experiments.report import verdict
from tsucb.paper.figure1 import Figure1, parse_cell
from tsucb.paper.posteriors import Posteriors
from tsucb.paper.table1 import Table1
from tsucb.paper.table2 import Table2
from tsucb.paper.theorems import Theorems

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    help="Reproduce an experiment of the paper and compare with its figures.",
    no_args_is_help=True,
)


class Scale(StrEnum):
    """How much is measured."""

    quick = "quick"
    full = "full"


class Prior(StrEnum):
    """Which prior of Figure 1: that of the authors' code, N(0, I/d), or of the text, N(0, I)."""

    code = "code"
    text = "text"


def carry_out(
    experiment: Experiment,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results; continued if it has some.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Tasks at once; default: one per core.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler to run on, tcp://HOST:PORT.")
    ] = None,
    continue_other_code: Annotated[
        bool,
        typer.Option(
            "--continue-other-code",
            help="Continue results that another state of this package has begun, mixing both.",
        ),
    ] = False,
) -> None:
    """Measure the experiment into its folder, with progress, and end with the claims."""
    from rich.console import Console

    if workers is not None:
        whole_number("workers", workers)
    out = out or Path("results") / experiment.name
    console = Console(highlight=False)
    console.print(f"[bold]{experiment.title}[/bold]")
    for note in experiment.notes():
        console.print(note, markup=False)
    try:
        result = reproduce(
            experiment,
            out,
            workers=workers,
            cluster=cluster,
            other_code=continue_other_code,
            console=console,
        )
    except KeyboardInterrupt:
        typer.echo("The same command continues where this one stopped.", err=True)
        raise
    show_claims(console, result.claims)
    console.print(f"Report: {out / 'report.html'} · numbers: {out / 'summary.csv'}", soft_wrap=True)


def show_claims(console: Console, claims: list[Claim]) -> None:
    """The table of claims in the terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, width=min(console.width, 120))
    table.add_column("claim of the paper", ratio=5)
    table.add_column("paper", ratio=2)
    table.add_column("measured", ratio=3)
    table.add_column("agrees?", no_wrap=True)
    for claim in claims:
        colour = {True: "green", False: "red", None: "dim"}[claim.agrees]
        table.add_row(*map(escape, claim[:3]), f"[{colour}]{verdict(claim)}[/{colour}]")
    console.print(table)


def settings(
    scale: Annotated[
        Scale, typer.Option(help="quick: minutes on two cores; full: as much as the paper.")
    ] = Scale.quick,
    runs: Annotated[
        int | None, typer.Option(help="Runs of every policy; default by scale.")
    ] = None,
    seed: SeedOption = 0,
    policies: Annotated[
        str | None, typer.Option(help='Only these, comma-separated, such as "TS,TS-UCB(1)".')
    ] = None,
) -> dict[str, Any]:
    """What every experiment is made of."""
    return {"scale": scale, "runs": runs, "seed": seed, "policies": listed(policies)}


def command(make: Callable[..., Experiment]) -> None:
    """Add a command that makes an experiment of its own options and `settings`, and carries it out.

    All options are on the signature that typer reads: its own first, then those that all share.
    """
    own, shared, last = (
        list(inspect.signature(function, eval_str=True).parameters.values())
        for function in (make, settings, carry_out)
    )
    own, last = own[1:], last[1:]  # without the settings, and without the experiment

    def run(**given: Any) -> None:
        values = [{one.name: given[one.name] for one in part} for part in (own, shared, last)]
        carry_out(make(settings(**values[1]), **values[0]), **values[2])

    options = [one.replace(kind=one.KEYWORD_ONLY) for one in (*own, *shared, *last)]
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in options}
    app.command(make.__name__, help=inspect.getdoc(make))(run)


@command
def figure1(
    settings: dict[str, Any],
    cells: Annotated[
        str | None, typer.Option(help='Only these cells, as arms:noise, such as "3:0.05,60:2".')
    ] = None,
    prior: Annotated[
        Prior, typer.Option(help="code: β ~ N(0, I/d), as the authors ran; text: N(0, I).")
    ] = Prior.code,
) -> Experiment:
    """Figure 1: 25 synthetic linear contextual bandits, six policies."""
    instances = cells and tuple(map(parse_cell, listed(cells) or ()))
    return Figure1.at(**settings, instances=instances, prior=prior.value)


@command
def table1(
    settings: dict[str, Any],
    log: Annotated[
        Path | None, typer.Option(help="Folder of the R6B files; a small log is generated if none.")
    ] = None,
    days: Annotated[int | None, typer.Option(help="Only the first days of the log.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Malformed lines are an error, not skipped.")
    ] = False,
) -> Experiment:
    """Table 1: personalised news from a click log."""
    experiment = Table1.at(**settings, log=log and str(log), days=days, strict=strict)
    typer.echo("Reading the log and fitting click models, unless the cache has them ...", err=True)
    experiment.prepare()
    return experiment


DatasetsOption = Annotated[str | None, typer.Option(help="Only these, comma-separated.")]
HorizonOption = Annotated[int | None, typer.Option(help="Steps of a run.")]
DataOption = Annotated[Path | None, typer.Option(help="Where the datasets lie.")]


@command
def table2(
    settings: dict[str, Any],
    datasets: DatasetsOption = None,
    horizon: HorizonOption = None,
    data_dir: DataOption = None,
) -> Experiment:
    """Table 2: Neural-Linear on seven real datasets."""
    folder = data_dir and str(data_dir)
    return Table2.at(**settings, datasets=listed(datasets), horizon=horizon, data_dir=folder)


@command
def posteriors(
    settings: dict[str, Any],
    datasets: DatasetsOption = None,
    posteriors: Annotated[str | None, typer.Option(help="Only these, comma-separated.")] = None,
    horizon: HorizonOption = None,
    data_dir: DataOption = None,
) -> Experiment:
    """Beyond the paper: Table 2's datasets with other posteriors of networks."""
    return Posteriors.at(
        **settings,
        datasets=listed(datasets),
        posteriors=listed(posteriors),
        horizon=horizon,
        data_dir=data_dir and str(data_dir),
    )


@command
def theorems(settings: dict[str, Any]) -> Experiment:
    """Theorems 1 and 2: Bayes regret against its bounds, and how often the bounds fail."""
    return Theorems.at(**settings)
