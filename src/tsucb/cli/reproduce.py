"""`tsucb reproduce`: the paper's experiments, one command each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tsucb.cli.options import DataOption, SeedOption, grouped, option, split_list
from tsucb.paper.experiments import Claim, Experiment, reproduce
from tsucb.paper.experiments.report import verdict
from tsucb.paper.figure1 import Figure1, parse_cell
from tsucb.paper.posteriors import Posteriors
from tsucb.paper.table1 import Table1
from tsucb.paper.table2 import Table2
from tsucb.paper.theorems import Theorems

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(no_args_is_help=True)


class Scale(StrEnum):
    """How much is measured."""

    quick = "quick"
    full = "full"


class Prior(StrEnum):
    """Which prior of Figure 1: that of the authors' code, N(0, I/d), or of the text, N(0, I)."""

    code = "code"
    text = "text"


@dataclass
class Settings:
    """The settings that all experiments share."""

    scale: Scale = option(Scale.quick, "quick: minutes on two cores; full: as much as the paper.")
    runs: int | None = option(None, "Runs of every policy; default by scale.")
    seed: SeedOption = 0
    policies: str | None = option(None, 'Only these, comma-separated, such as "TS,TS-UCB(1)".')

    def make(self, kind: type[Experiment], **own: Any) -> Experiment:
        """Return an experiment of a kind with these settings, and with `own` ones of the kind."""
        policies = split_list(self.policies)
        return kind.at(self.scale, runs=self.runs, seed=self.seed, policies=policies, **own)


@dataclass
class Work:
    """Where an experiment runs, and where its results go."""

    out: Path | None = option(None, "Folder of the results; continued if it has some.")
    workers: int | None = option(None, "Tasks at once; default: one per core.")
    cluster: str | None = option(None, "Address of a Dask scheduler to run on, tcp://HOST:PORT.")
    continue_other_code: bool = option(
        False,
        "Continue results that another state of this package has begun, mixing both.",
        "--continue-other-code",
    )

    def carry_out(self, experiment: Experiment) -> None:
        """Run the experiment, write its results into the folder, and print the claims."""
        from rich.console import Console

        out = self.out or Path("results") / experiment.name
        console = Console(highlight=False)
        console.print(f"[bold]{experiment.title}[/bold]")
        for note in experiment.notes():
            console.print(note, markup=False)
        try:
            result = reproduce(
                experiment, out, workers=self.workers, cluster=self.cluster,
                other_code=self.continue_other_code, console=console,
            )  # fmt: skip
        except KeyboardInterrupt:
            typer.echo("The same command continues where this one stopped.", err=True)
            raise
        print_claims(console, result.claims)
        files = f"Report: {out / 'report.html'} · numbers: {out / 'summary.csv'}"
        console.print(files, soft_wrap=True)


def print_claims(console: Console, claims: list[Claim]) -> None:
    """Print the table of claims."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, width=min(console.width, 140))
    for name, ratio in (("claim of the paper", 5), ("paper", 2), ("measured", 3)):
        table.add_column(name, ratio=ratio)
    table.add_column("agrees?", no_wrap=True)
    table.add_column("yes if", ratio=3)
    for claim in claims:
        colour = {True: "green", False: "red", None: "dim"}[claim.agrees]
        word = f"[{colour}]{verdict(claim)}[/{colour}]"
        table.add_row(*map(escape, claim[:3]), word, escape(claim.rule))
    console.print(table)
    verdicts = [claim.agrees for claim in claims]
    agree, differ = verdicts.count(True), verdicts.count(False)
    console.print(f"Of {len(claims)} claims, {agree} agree with the paper and {differ} do not.")
    if None in verdicts:
        console.print(
            "The others cannot be told: something was not measured as in the paper, or a 95 % "
            "interval allows both answers; intervals shrink with more --runs."
        )


@app.command()
@grouped
def figure1(
    settings: Settings,
    work: Work,
    cells: Annotated[
        str | None, typer.Option(help='Only these cells, as arms:noise, such as "3:0.05,60:2".')
    ] = None,
    prior: Annotated[
        Prior, typer.Option(help="code: β ~ N(0, I/d), as the authors ran; text: N(0, I).")
    ] = Prior.code,
) -> None:
    """Figure 1: synthetic linear bandits, 25 cells, six policies."""
    instances = None if cells is None else tuple(map(parse_cell, split_list(cells) or ()))
    work.carry_out(settings.make(Figure1, instances=instances, prior=prior.value))


@app.command()
@grouped
def table1(
    settings: Settings,
    work: Work,
    log: Annotated[
        Path | None, typer.Option(help="Folder of the R6B files; a small log is generated if none.")
    ] = None,
    days: Annotated[int | None, typer.Option(help="Only the first days of the log.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Malformed lines are an error, not skipped.")
    ] = False,
) -> None:
    """Table 1: personalised news from a click log."""
    experiment = settings.make(Table1, log=log and str(log), days=days, strict=strict)
    typer.echo("Reading the log and fitting click models ...", err=True)
    experiment.prepare()
    work.carry_out(experiment)


@dataclass
class Data:
    """The settings of the experiments on datasets."""

    datasets: str | None = option(None, "Only these, comma-separated.")
    horizon: int | None = option(None, "Steps of a run.")
    data_dir: DataOption = None

    def arguments(self) -> dict[str, Any]:
        """Return these settings as the keyword arguments of an experiment."""
        folder = self.data_dir and str(self.data_dir)
        datasets = split_list(self.datasets)
        return {"datasets": datasets, "horizon": self.horizon, "data_dir": folder}


@app.command()
@grouped
def table2(settings: Settings, work: Work, data: Data) -> None:
    """Table 2: Neural-Linear on seven real datasets."""
    work.carry_out(settings.make(Table2, **data.arguments()))


@app.command()
@grouped
def posteriors(
    settings: Settings,
    work: Work,
    data: Data,
    posteriors: Annotated[str | None, typer.Option(help="Only these, comma-separated.")] = None,
) -> None:
    """Beyond the paper: Table 2 with other posteriors of networks."""
    names = split_list(posteriors)
    work.carry_out(settings.make(Posteriors, posteriors=names, **data.arguments()))


@app.command()
@grouped
def theorems(settings: Settings, work: Work) -> None:
    """Theorems 1 and 2: Bayes regret against its bounds.

    Also how often the bounds fail.
    """
    work.carry_out(settings.make(Theorems))
