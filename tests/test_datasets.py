"""The datasets: small files in the sources' formats, and the real ones where TSUCB_DATA points."""

import gzip
import hashlib
import http.server
import os
import struct
import threading
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tsucb.cli.commands import answer
from tsucb.paper import datasets
from tsucb.paper.datasets import DATASETS, bandits, files, sources
from tsucb.paper.datasets.sources import one_hot, standardise

FOLDER = os.environ.get("TSUCB_DATA")
needs_data = pytest.mark.skipif(
    not FOLDER, reason="set TSUCB_DATA to a folder with the real datasets"
)


def census_lines(rows: int) -> list[str]:
    """Return a header of 69 names, and rows with 2 answers to most questions and 9 occupations."""
    names = ["caseid", *(f"i{k}" for k in range(67)), "dOccup"]
    body = [
        [str(10_000 + i), *(str((i + k) % 2) for k in range(67)), str(i % 9)] for i in range(rows)
    ]
    return [",".join(row) for row in [names, *body]]


def adult_line(occupation: str, country: str = "Peru", income: str = "<=50K") -> str:
    return (
        f"39, Private, 77516, Bachelors, 13, Divorced, {occupation}, Wife, White, Male, "
        f"2174, 0, 40, {country}, {income}"
    )


def jester_line(ratings: list[float]) -> str:
    return ",".join(f"{x:g}" for x in [sum(r != 99 for r in ratings), *ratings])


def jokes(rated: int, value: float = 1.5) -> list[float]:
    return [value] * rated + [99] * (100 - rated)


CONTENT: dict[str, dict[str, list[str]]] = {
    "mushroom": {
        "agaricus-lepiota.data": [
            ",".join(["p", *"x" * 21, "?"]),
            ",".join(["e", *"b" * 21, "k"]),
            ",".join(["e", *"x" * 21, "k"]),
        ]
    },
    "statlog": {
        "shuttle.trn": [f"{i} 0 {-i} 4 {i * i} 0 1 2 3 {1 + i % 7}" for i in range(14)],
    },
    "covertype": {
        "covtype.data": [",".join(["2596", *"01" * 26, str(i), str(1 + i % 7)]) for i in range(7)]
    },
    "adult": {
        "adult.data": [
            adult_line("Sales"),
            adult_line("Craft-repair", "Cuba"),
            adult_line("?"),
            "",
        ],
        "adult.test": ["|1x3 Cross validator", adult_line("Sales", income=">50K.")],
    },
    "census": {"USCensus1990.data.txt": census_lines(18)},
    "jester": {
        "jester-data-1.csv": [
            jester_line(jokes(100)),
            jester_line(jokes(40, -9.95)),
            jester_line([99, *jokes(99)[:99]]),
        ]
    },
    "financial": {
        "raw_stock_contexts": [
            ",".join(["MSFT"] * 21),
            *(" ".join([f"{0.1 * i + k:.18e}" for k in range(21)]) for i in range(5)),
        ]
    },
}
SHAPES = {  # rows, features, arms of these small files
    "mushroom": (3, 44, 2),
    "statlog": (14, 9, 7),
    "covertype": (7, 54, 7),
    "adult": (3, 16, 2),
    "census": (18, 134, 9),
    "jester": (2, 32, 8),
    "financial": (5, 21, 8),
}


def write(folder: Path, name: str, compress: bool = False) -> Path:
    """Write the small files of a dataset to a subfolder with its name."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    for file, lines in CONTENT[name].items():
        text = "\n".join(lines).encode() + b"\n"
        path = folder / name / (f"{file}.gz" if compress else file)
        path.write_bytes(gzip.compress(text) if compress else text)
    return folder / name


def read(folder: Path, name: str, compress: bool = False):  # type: ignore[no-untyped-def]
    """Return the bandit of the small files of a dataset, whose checksums are not the real ones."""
    write(folder, name, compress)
    return bandit_in(folder / name)


def bandit_in(folder: Path):  # type: ignore[no-untyped-def]
    """Return the bandit of a dataset's folder without verifying its files."""
    dataset = DATASETS[folder.name]
    return dataset.environment(*dataset.contents(folder))


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("name", DATASETS)
def test_small_files_are_read(tmp_path: Path, name: str, compress: bool) -> None:
    environment = read(tmp_path, name, compress)
    assert (environment.rows, environment.features, environment.arms) == SHAPES[name]


def test_mushroom_is_one_hot_and_knows_what_is_edible(tmp_path: Path) -> None:
    environment = read(tmp_path, "mushroom")
    assert environment.edible.tolist() == [False, True, True]
    assert (environment.contexts.sum(axis=1) == 22).all()
    # The last attribute has two values, '?' and 'k', in this order.
    assert environment.contexts[:, -2:].tolist() == [[1, 0], [0, 1], [0, 1]]


def test_classification_data_are_standardised(tmp_path: Path) -> None:
    environment = read(tmp_path, "statlog")
    assert environment.labels.tolist() == [i % 7 for i in range(14)]
    spread = environment.contexts.std(axis=0)
    np.testing.assert_allclose(environment.contexts.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(spread, [1, 0, 1, 0, 1, 0, 0, 0, 0], atol=1e-12)


def test_adult_drops_missing_values_and_keeps_dotted_incomes_apart(tmp_path: Path) -> None:
    environment = read(tmp_path, "adult")
    assert environment.labels.tolist() == [1, 0, 1]  # Craft-repair, Sales
    # 6 numbers, 6 columns of one word, 2 countries, and the incomes <=50K and >50K.
    assert environment.features == 6 + 6 + 2 + 2


def test_jester_keeps_users_who_rated_the_most_rated_jokes(tmp_path: Path) -> None:
    environment = read(tmp_path, "jester")
    assert environment.ratings[:, 0].tolist() == [1.5, -9.95]


def test_financial_contexts_are_raw(tmp_path: Path) -> None:
    environment = read(tmp_path, "financial")
    np.testing.assert_allclose(environment.contexts[3], 0.3 + np.arange(21))


# The bandits


def steps(bandit, count: int, seed: int = 0):  # type: ignore[no-untyped-def]
    """Yield the world of a run, and copies of context and means, at each of its first steps."""
    rng = np.random.default_rng(seed)
    world = bandit.begin(rng)
    for step in range(1, count + 1):
        context, means, available = bandit.advance(world, step, rng)
        assert available.tolist() == list(range(bandit.arms))
        yield world, context.copy(), means.copy()


def test_mushrooms_pay_5_or_harm_half_of_the_time() -> None:
    bandit = bandits.MushroomBandit([[1.0, 0.0], [0.0, 1.0]], edible=[True, False])
    bitten = []
    for world, context, means in steps(bandit, 4_000):
        if context[0]:
            assert means.tolist() == [0, 5]
            assert bandit.reward(world, 1) == 5
        else:
            assert means.tolist() == [0, -15]
            bitten.append(bandit.reward(world, 1))
        assert bandit.reward(world, 0) == 0
    assert set(bitten) == {-35, 5}
    # Binomial with ½ both: 4.5 standard deviations, false alarm 7e-6 each
    assert abs(len(bitten) - 2_000) < 4.5 * np.sqrt(1_000)
    assert abs(bitten.count(5) - len(bitten) / 2) < 4.5 * np.sqrt(len(bitten) / 4)


def test_jester_pays_the_ratings_of_jokes_that_are_not_in_the_context() -> None:
    ratings = np.arange(5)[:, None] * 100 + np.arange(12)
    bandit = bandits.JesterBandit(ratings)
    users, orders = set(), set()
    for seed in range(3):
        for world, context, means in steps(bandit, 5, seed):
            seen = np.concatenate([context, means])
            assert sorted(seen) == ratings[int(seen[0] // 100)].tolist()
            assert [bandit.reward(world, arm) for arm in range(8)] == means.tolist()
            users.add((seed, seen[0] // 100))
            orders.add((seed, *(seen % 100)))
    assert len(users) == 15  # every user once in a run
    assert len(orders) == 3  # the jokes in one order in a run, and another in the next


def test_portfolios_pay_their_stocks_and_noise_that_grows() -> None:
    returns = np.random.default_rng(1).standard_normal((4_000, 3))
    bandit = bandits.PortfolioBandit(returns)
    noise = []
    for world, context, means in steps(bandit, 4_000):
        weights = world.parameters[1].reshape(8, 3)
        np.testing.assert_allclose(means, weights @ context, rtol=1e-12, atol=1e-12)
        noise.append([bandit.reward(world, arm) - means[arm] for arm in range(8)])
    np.testing.assert_allclose(np.linalg.norm(weights, axis=1), 1)
    # The relative error of a standard deviation from 4,000 normals is 1/√8000; 4.5 of them
    np.testing.assert_allclose(np.std(noise, axis=0), 0.01 * np.arange(1, 9), rtol=4.5 / 89)


@pytest.mark.parametrize("damage", [lambda b: b[:-20], lambda b: b[:30] + b"??" + b[32:]])
def test_a_broken_gzip_file_is_an_error(tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    folder = write(tmp_path, "covertype", compress=True)
    path = folder / "covtype.data.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"covtype.data.gz is no whole gzip file"):
        bandit_in(folder)


def test_a_shortened_dataset_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "statlog")
    with pytest.raises(ValueError, match=r"shuttle.trn is not the file of dataset statlog"):
        datasets.load("statlog", tmp_path)


def test_one_altered_digit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same rows, columns and labels, and yet other data."""
    path = write(tmp_path, "statlog") / "shuttle.trn"
    content = path.read_bytes()
    genuine = described("shuttle.trn", content)
    small = DATASETS["statlog"]._replace(files=(genuine,), rows=14, features=9, arms=7)
    monkeypatch.setitem(DATASETS, "statlog", small)
    assert datasets.load("statlog", tmp_path).rows == 14
    path.write_bytes(
        content.replace(b"\n", b"\r\n") + b"\r\n"
    )  # the same lines, as Windows has them
    assert datasets.load("statlog", tmp_path).rows == 14
    path.write_bytes(content.replace(b"3 0 -3 4", b"3 0 -2 4"))
    with pytest.raises(ValueError, match=r"its checksum differs.*tsucb data get statlog"):
        datasets.load("statlog", tmp_path)


def test_a_file_that_expands_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    folder = write(tmp_path, "statlog", compress=True)
    path = folder / "shuttle.trn.gz"
    with gzip.open(path, "wb", 1) as file:
        for _ in range(300):
            file.write(bytes(1 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"shuttle.trn.gz is another file.*1,153,517 were"):
            datasets.load("statlog", tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 << 20


def test_census_reads_the_first_rows_of_a_longer_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tsucb.paper.datasets.sources.CENSUS_ROWS", 12)
    assert read(tmp_path, "census").rows == 12


def test_missing_dataset_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TSUCB_DATA", str(tmp_path / "second"))
    monkeypatch.setenv("TSUCB_CACHE", str(tmp_path / "third"))
    with pytest.raises(FileNotFoundError, match=r"tsucb data get adult.*adult.data and adult.test"):
        datasets.load("adult", tmp_path / "first")
    with pytest.raises(ValueError, match=r"unknown dataset 'iris'; the datasets are adult, census"):
        datasets.load("iris")


def test_folders_are_searched_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSUCB_DATA", str(tmp_path / "second"))
    monkeypatch.setenv("TSUCB_CACHE", str(tmp_path / "third"))
    statlog = DATASETS["statlog"]
    for folder in ("third/data", "second", "first"):
        write(tmp_path / folder, "statlog")
        assert statlog.find(tmp_path / "first") == tmp_path / folder / "statlog"


def test_one_hot_and_standardise_agree_with_pandas() -> None:
    import pandas as pd

    rng = np.random.default_rng(0)
    numbers, words = rng.normal(size=50), rng.choice(["a", "b", "c"], size=50)
    table = pd.DataFrame({"n": numbers, "w": words})
    expected = pd.get_dummies(table, dtype=float)
    found = one_hot(table)
    np.testing.assert_array_equal(found, expected.to_numpy())
    np.testing.assert_allclose(
        standardise(found), ((expected - expected.mean()) / expected.std(ddof=0)).to_numpy()
    )


# Fetching, from a server of our own


@pytest.fixture
def server(tmp_path: Path):  # type: ignore[no-untyped-def]
    """A web server of the folder `web`; its address."""
    web = tmp_path / "web"
    web.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args) -> None:  # type: ignore[no-untyped-def]
            super().__init__(*args, directory=str(web))

        def log_message(self, *args) -> None:  # type: ignore[no-untyped-def]
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as http_server:
        threading.Thread(target=http_server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http_server.server_address[1]}"
        http_server.shutdown()


def described(url: str, content: bytes, **more) -> files.File:  # type: ignore[no-untyped-def]
    content = content.rstrip()
    return files.File(url, hashlib.sha256(content).hexdigest(), len(content), **more)


def test_fetching_verifies_and_puts_in_place(tmp_path: Path, server: str) -> None:
    (tmp_path / "web" / "a.gz").write_bytes(gzip.compress(b"1 2\n3 4\n"))
    file = described(f"{server}/a.gz", b"1 2\n3 4")
    path = file.fetch(tmp_path / "data")
    assert file.read(path) == b"1 2\n3 4\n"
    assert [p.name for p in (tmp_path / "data").iterdir()] == ["a.gz"]


def test_fetching_can_verify_a_beginning_and_convert(tmp_path: Path, server: str) -> None:
    def upper(path: Path) -> bytes:
        return path.read_bytes().upper()

    (tmp_path / "web" / "a").write_bytes(b"abcdef")
    file = described(f"{server}/a", b"ABC", prefix=True, convert=upper)
    assert file.fetch(tmp_path / "data").read_bytes() == b"ABCDEF"


def test_a_wrong_checksum_leaves_nothing_behind(tmp_path: Path, server: str) -> None:
    (tmp_path / "web" / "a").write_bytes(b"not it")
    with pytest.raises(
        ValueError, match=r"its checksum differs.*download .*/a by hand, and put it"
    ):
        described(f"{server}/a", b"it").fetch(tmp_path / "data")
    assert not list((tmp_path / "data").iterdir())


def test_no_network_says_what_to_do_by_hand(tmp_path: Path, server: str) -> None:
    for url, reason in (("http://127.0.0.1:9/a", "ConnectionError"), (f"{server}/b", "404")):
        with pytest.raises(
            ConnectionError,
            match=rf"cannot reach {url} \({reason}.*by hand, and put it at .*data/[ab]",
        ):
            described(url, b"it").fetch(tmp_path / "data")


def test_jester_is_made_from_the_zipped_excel_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    xlrd = pytest.importorskip("xlrd", reason="reads the Excel file: pip install 'tsucb[paper]'")

    class Sheet:
        nrows = 2

        def row_values(self, row: int) -> list[float]:
            return [[74.0, -7.82, 99.0], [100.0, 4.08, 1.5]][row]

    class Book:
        def sheet_by_index(self, index: int) -> Sheet:
            return Sheet()

    def open_workbook(*, file_contents: bytes) -> Book:
        assert file_contents == b"excel"
        return Book()

    monkeypatch.setattr(xlrd, "open_workbook", open_workbook)
    archive = tmp_path / "archive.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("jester-data-1.xls", b"excel")
    assert sources.csv_from_archive(archive) == b"74,-7.82,99\n100,4.08,1.5"


def test_an_excel_file_that_lies_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("xlrd", reason="reads the Excel file: pip install 'tsucb[paper]'")
    begin, end = struct.pack("<HHHH", 9, 4, 2, 16), struct.pack("<HH", 10, 0)
    text = struct.pack("<HHHHBBBB", 4, 10, 0, 0, 0, 0, 0, 2) + b"no"
    for sheet in (b"", begin, begin + text + end, begin + b"\x03\0\x0f\0" + end, b"\xd0\xcf" * 99):
        archive = tmp_path / "archive.zip"
        with zipfile.ZipFile(archive, "w") as zipped:
            zipped.writestr("jester-data-1.xls", sheet)
        with pytest.raises(ValueError, match="no zipped Excel file"):
            sources.csv_from_archive(archive)


def test_what_jester_sends_is_not_unpacked_if_it_is_too_large(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    xlrd = pytest.importorskip("xlrd", reason="reads the Excel file: pip install 'tsucb[paper]'")
    monkeypatch.setattr(xlrd, "open_workbook", None)  # is never called
    monkeypatch.setattr(sources, "MOST_BYTES", 1 << 20)
    file = sources.JESTER._replace(url=f"{server}/bomb.zip")
    with zipfile.ZipFile(tmp_path / "web" / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("jester-data-1.xls", bytes(1 << 24))
    with pytest.raises(ValueError, match="no single Excel file of up to 1,048,576 bytes"):
        file.fetch(tmp_path / "data")
    (tmp_path / "web" / "bomb.zip").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="no zipped Excel file"):
        file.fetch(tmp_path / "data")
    assert not list((tmp_path / "data").iterdir())


def test_an_endless_download_is_broken_off(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 1_000)
    (tmp_path / "web" / "a").write_bytes(bytes(2_000))
    with pytest.raises(ValueError, match=r"longer than 1,000 bytes: download .*/a by hand"):
        described(f"{server}/a", b"it").fetch(tmp_path / "data")
    assert not list((tmp_path / "data").iterdir())


# The command line


def test_list_shows_what_is_present_and_where_it_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TSUCB_DATA", raising=False)
    monkeypatch.setenv("TSUCB_CACHE", str(tmp_path / "cache"))
    folder = write(tmp_path, "statlog")
    assert answer(["data", "list", "--data-dir", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("statlog") and line.endswith(str(folder)) for line in lines)
    assert any(line.startswith("adult") and "tsucb data get adult" in line for line in lines)
    assert any(line.startswith("wheel") and "needs no data" in line for line in lines)
    assert lines[-2:] == [f"  {tmp_path}", f"  {tmp_path / 'cache' / 'data'}"]


def test_check_names_the_fault_and_leaves_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TSUCB_DATA", str(tmp_path))
    monkeypatch.setenv("TSUCB_CACHE", str(tmp_path / "cache"))
    assert answer(["data", "check"]) == 2
    assert "no dataset is present" in capsys.readouterr().err
    content = (write(tmp_path, "statlog") / "shuttle.trn").read_bytes()
    small = (described("shuttle.trn", content),)
    monkeypatch.setitem(
        DATASETS, "statlog", DATASETS["statlog"]._replace(files=small, rows=14, features=9, arms=7)
    )
    assert answer(["data", "check"]) == 0
    assert "statlog: 14 rows, 9 features, 7 arms: good" in capsys.readouterr().out
    write(tmp_path, "covertype")
    assert answer(["data", "check"]) == 2
    assert "covtype.data is not the file of dataset covertype" in capsys.readouterr().err


def test_get_fetches_only_what_is_missing(
    tmp_path: Path, server: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TSUCB_DATA", raising=False)
    monkeypatch.setenv("TSUCB_CACHE", str(tmp_path / "cache"))
    content = "\n".join(CONTENT["statlog"]["shuttle.trn"]).encode()
    (tmp_path / "web" / "shuttle.trn").write_bytes(content)
    file = described(f"{server}/shuttle.trn", content)
    monkeypatch.setitem(DATASETS, "statlog", DATASETS["statlog"]._replace(files=(file,)))
    command = ["data", "get", "statlog", "--data-dir", str(tmp_path)]
    assert answer(command) == 0
    path = tmp_path / "statlog" / "shuttle.trn"
    assert capsys.readouterr().out == f"statlog: {path}\n"
    (tmp_path / "web" / "shuttle.trn").unlink()
    assert answer(command) == 0  # nothing is fetched again
    path.unlink()
    assert answer(command) == 2
    error = capsys.readouterr().err
    assert "by hand" in error
    assert error.count("\n") == 1
    assert answer(["data", "get", "iris"]) == 2
    assert "unknown dataset 'iris'" in capsys.readouterr().err


# The real files


@needs_data
@pytest.mark.parametrize("name", DATASETS)
def test_real_files(name: str) -> None:
    dataset = DATASETS[name]
    folder = dataset.find(FOLDER)
    if folder is None:
        pytest.skip(f"{name} is not in {FOLDER}")
    environment = datasets.load(name, FOLDER)
    assert np.isfinite(environment[0]).all()
    for file in dataset.files:
        path = file.find(folder)
        assert path is not None
        assert file.verifies(file.read(path))
