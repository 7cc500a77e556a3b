"""`tsucb data`: list, download and check the datasets; make a news log."""

from pathlib import Path
from typing import Annotated

import typer

from tsucb.cli.options import DataOption
from tsucb.paper.datasets import DATASETS, data_folders, fetch, load
from tsucb.paper.news import generate

app = typer.Typer()


@app.command("list")
def list_datasets(data_dir: DataOption = None) -> None:
    """Show the datasets, the folder of each, and the folders that are searched."""
    typer.echo(f"{'dataset':<11}{'rows':>9}{'features':>10}{'arms':>6}   where")
    for dataset in DATASETS.values():
        place = dataset.find(data_dir) or f"absent: tsucb data get {dataset.name}"
        size = f"{dataset.rows:>9,}{dataset.features:>10}{dataset.arms:>6}"
        typer.echo(f"{dataset.name:<11}{size}   {place}")
    typer.echo(f"{'wheel':<11}{'any':>9}{2:>10}{5:>6}   needs no data")
    typer.echo("\nsearched for in subfolders with these names of:")
    for folder in data_folders(data_dir):
        typer.echo(f"  {folder}")


@app.command("get")
def get_datasets(
    names: Annotated[list[str], typer.Argument(help="Datasets, or `all`.", metavar="NAME...")],
    data_dir: DataOption = None,
) -> None:
    """Download datasets from their public sources and verify their checksums."""
    for name in DATASETS if names == ["all"] else names:
        for path in fetch(name, data_dir):
            typer.echo(f"{name}: {path}")


@app.command("check")
def check_datasets(
    names: Annotated[
        list[str] | None, typer.Argument(help="Datasets; all that are present if none is named.")
    ] = None,
    data_dir: DataOption = None,
) -> None:
    """Read datasets and verify their rows, columns and labels."""
    present = [name for name, dataset in DATASETS.items() if dataset.find(data_dir)]
    if not (names or present):
        raise FileNotFoundError("no dataset is present; `tsucb data list` shows where they belong")
    faults = []
    for name in names or present:
        try:
            found = load(name, data_dir)
        except (ValueError, OSError) as error:
            faults.append(name)
            typer.echo(f"{name}: {error}", err=True)
        else:
            typer.echo(
                f"{name}: {found.rows:,} rows, {found.features} features, {found.arms} arms: good"
            )
    if faults:
        raise typer.Exit(code=2)


@app.command("make-news")
def make_news(
    folder: Annotated[Path, typer.Argument(help="Where the files go.", metavar="DIR")],
    days: Annotated[int, typer.Option(help="Files, one for each day.")] = 10,
    lines: Annotated[int, typer.Option(help="Visits a day.")] = 1_500_000,
    seed: Annotated[int, typer.Option(help="The same seed makes the same log.")] = 0,
    workers: Annotated[int | None, typer.Option(help="Days at once; default: one a core.")] = None,
) -> None:
    """Make a news click log in the form of Yahoo!'s R6B, with true click rates in truth.npz."""
    generate.make_news(
        folder, days=days, lines=lines, seed=seed, workers=workers, progress=typer.echo
    )
