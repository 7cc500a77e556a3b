"""`tsucb reproduce`: the paper's experiments, each one command."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tsucb.experiments import Claim, Experiment, reproduce
from tsucb.experiments.paper.figure1 import Figure1, parse_cell
from tsucb.experiments.paper.table1 import Table1
from tsucb.experiments.paper.table2 import Table2
from tsucb.experiments.paper.theorems import Theorems
from tsucb.experiments.posteriors import Posteriors
from tsucb.experiments.report import verdict

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


# The options that all experiments share.
ScaleOption = Annotated[
    Scale, typer.Option(help="quick: minutes on two cores; full: as much as the paper.")
]
RunsOption = Annotated[int | None, typer.Option(help="Runs of every policy; default by scale.")]
SeedOption = Annotated[int, typer.Option(help="Seed of all randomness.")]
PoliciesOption = Annotated[
    str | None, typer.Option(help='Only these, comma-separated, such as "TS,TS-UCB(1)".')
]
OutOption = Annotated[
    Path | None, typer.Option(help="Folder of the results; continued if it has some.")
]
WorkersOption = Annotated[int | None, typer.Option(help="Tasks at once; default: one per core.")]
ClusterOption = Annotated[
    str | None, typer.Option(help="Address of a Dask scheduler to run on, tcp://HOST:PORT.")
]

OtherCodeOption = Annotated[
    bool,
    typer.Option(
        "--continue-other-code",
        help="Continue results that another state of this package has begun, mixing both.",
    ),
]


def listed(text: str | None) -> tuple[str, ...] | None:
    """The parts of a comma-separated list.

    >>> listed("TS, TS-UCB(1)")
    ('TS', 'TS-UCB(1)')
    """
    if text is None:
        return None
    return tuple(part.strip() for part in text.split(",") if part.strip())


def carry_out(
    experiment: Experiment,
    out: Path | None,
    workers: int | None,
    cluster: str | None,
    other_code: bool,
) -> None:
    """Measure the experiment into its folder, with progress, and end with the claims."""
    from rich.console import Console

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
            other_code=other_code,
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


@app.command()
def figure1(
    scale: ScaleOption = Scale.quick,
    runs: RunsOption = None,
    seed: SeedOption = 0,
    cells: Annotated[
        str | None, typer.Option(help='Only these cells, as arms:noise, such as "3:0.05,60:2".')
    ] = None,
    policies: PoliciesOption = None,
    prior: Annotated[
        Prior, typer.Option(help="code: β ~ N(0, I/d), as the authors ran; text: N(0, I).")
    ] = Prior.code,
    out: OutOption = None,
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    continue_other_code: OtherCodeOption = False,
) -> None:
    """Figure 1: 25 synthetic linear contextual bandits, six policies."""
    experiment = Figure1.at(
        scale,
        runs=runs,
        seed=seed,
        instances=cells and tuple(map(parse_cell, listed(cells) or ())),
        policies=listed(policies),
        prior=prior.value,
    )
    carry_out(experiment, out, workers, cluster, continue_other_code)


@app.command()
def table1(
    log: Annotated[
        Path | None, typer.Option(help="Folder of the R6B files; a small log is generated if none.")
    ] = None,
    days: Annotated[int | None, typer.Option(help="Only the first days of the log.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Malformed lines are an error, not skipped.")
    ] = False,
    scale: ScaleOption = Scale.quick,
    runs: RunsOption = None,
    seed: SeedOption = 0,
    policies: PoliciesOption = None,
    out: OutOption = None,
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    continue_other_code: OtherCodeOption = False,
) -> None:
    """Table 1: personalised news from a click log."""
    experiment = Table1.at(
        scale,
        log=log and str(log),
        days=days,
        strict=strict,
        runs=runs,
        seed=seed,
        policies=listed(policies),
    )
    typer.echo("Reading the log and fitting click models, unless the cache has them ...", err=True)
    experiment.prepare()
    carry_out(experiment, out, workers, cluster, continue_other_code)


@app.command()
def table2(
    datasets: Annotated[str | None, typer.Option(help="Only these, comma-separated.")] = None,
    horizon: Annotated[int | None, typer.Option(help="Steps of a run.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where the datasets lie.")] = None,
    scale: ScaleOption = Scale.quick,
    runs: RunsOption = None,
    seed: SeedOption = 0,
    policies: PoliciesOption = None,
    out: OutOption = None,
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    continue_other_code: OtherCodeOption = False,
) -> None:
    """Table 2: Neural-Linear on seven real datasets."""
    experiment = Table2.at(
        scale,
        datasets=listed(datasets),
        horizon=horizon,
        data_dir=data_dir and str(data_dir),
        runs=runs,
        seed=seed,
        policies=listed(policies),
    )
    carry_out(experiment, out, workers, cluster, continue_other_code)


@app.command()
def posteriors(
    datasets: Annotated[str | None, typer.Option(help="Only these, comma-separated.")] = None,
    posteriors: Annotated[str | None, typer.Option(help="Only these, comma-separated.")] = None,
    horizon: Annotated[int | None, typer.Option(help="Steps of a run.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where the datasets lie.")] = None,
    scale: ScaleOption = Scale.quick,
    runs: RunsOption = None,
    seed: SeedOption = 0,
    policies: PoliciesOption = None,
    out: OutOption = None,
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    continue_other_code: OtherCodeOption = False,
) -> None:
    """Beyond the paper: Table 2's datasets with other posteriors of networks."""
    experiment = Posteriors.at(
        scale,
        datasets=listed(datasets),
        posteriors=listed(posteriors),
        horizon=horizon,
        data_dir=data_dir and str(data_dir),
        runs=runs,
        seed=seed,
        policies=listed(policies),
    )
    carry_out(experiment, out, workers, cluster, continue_other_code)


@app.command()
def theorems(
    scale: ScaleOption = Scale.quick,
    runs: RunsOption = None,
    seed: SeedOption = 0,
    policies: PoliciesOption = None,
    out: OutOption = None,
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    continue_other_code: OtherCodeOption = False,
) -> None:
    """Theorems 1 and 2: Bayes regret against its bounds, and how often the bounds fail."""
    experiment = Theorems.at(scale, runs=runs, seed=seed, policies=listed(policies))
    carry_out(experiment, out, workers, cluster, continue_other_code)
