"""The news log: reading, malformed lines, the generator and the click model."""

import gzip
import io
import os
import zipfile
from collections.abc import Iterable
from pathlib import Path

import forgery
import numpy as np
import pytest
from by_hand import click_rates

from tsucb.paper.news import clicks, parser
from tsucb.paper.news.clicks import ClickModel, fit_clicks
from tsucb.paper.news.day import SkippedLines, log_files
from tsucb.paper.news.generate import FEWEST, MOST, make_news
from tsucb.paper.news.parser import read_day

GOOD = "1317513291 id-560620 0 |user 1 9 11 136 |id-552077 |id-555224 |id-560620"
CLICK = "1317513292 id-552077 1 |user 1 |id-552077 |id-560620"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log")
    make_news(path, days=2, lines=60_000, seed=3)
    return path


def write(path: Path, lines: Iterable[str], end: str = "\n") -> Path:
    file = path / "ydata-fp-td-clicks-v2_0.20111002.gz"
    file.write_bytes(gzip.compress(("\n".join(lines) + end).encode()))
    return file


def test_fields_of_a_line(tmp_path: Path) -> None:
    day = read_day(write(tmp_path, [GOOD, CLICK, GOOD]))
    assert day.name == "20111002"
    assert day.time.tolist() == [1317513291, 1317513292, 1317513291]
    assert day.article.tolist() == [560620, 552077, 560620]
    assert day.click.tolist() == [0, 1, 0]
    assert day.features.tolist() == [0, 8, 10, 135, 0, 0, 8, 10, 135]
    assert day.ends.tolist() == [0, 4, 5, 9]
    assert [day.pools[p].tolist() for p in day.pool] == [
        [552077, 555224, 560620],
        [552077, 560620],
        [552077, 555224, 560620],
    ]
    assert len(day.pools) == 2
    assert day.problems == ()
    assert not day.generated


@pytest.mark.parametrize("change", [("\n", " \r\n"), (" |", "  |"), (" ", "\t"), (" 9 ", "  9 ")])
def test_other_blanks_between_fields_are_fine(tmp_path: Path, change: tuple[str, str]) -> None:
    usual = f"{GOOD}\n{CLICK}\n"
    day = read_day(write(tmp_path, [usual.replace(*change)], end=""), strict=True)
    again = read_day(write(tmp_path, [usual], end=""), strict=True)
    assert day.features.tolist() == again.features.tolist()
    assert day.article.tolist() == again.article.tolist()
    assert len(day) == 2


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("", parser.FIELD),
        (" " + GOOD, parser.FIELD),
        (GOOD + " x", parser.FIELD),
        (GOOD + "|", parser.FIELD),
        (GOOD.replace("1317513291", "-5"), parser.FIELD),
        (GOOD.replace(" 0 ", " 2 "), parser.FIELD),
        (GOOD.replace(" 0 ", " 01 "), parser.FIELD),
        (GOOD.replace("|user", "|usr"), parser.FIELD),
        (GOOD.replace("1 9 11 136 ", ""), parser.FIELD),
        (GOOD.replace(" 9 ", " x "), parser.FIELD),
        (GOOD.replace("|user ", "|user"), parser.FIELD),
        (GOOD.replace("id-560620 0", "560620 0"), parser.FIELD),
        (GOOD.replace("id-555224", "id-"), parser.FIELD),
        (GOOD.replace("id-555224", "id-1234567890"), parser.FIELD),
        (GOOD.replace("id-555224", "id-552077"), parser.FIELD),
        (GOOD[: GOOD.index(" |id")], parser.FIELD),
        (GOOD.replace("id-560620 0", "id-560621 0"), parser.DISPLAYED),
        (GOOD.replace(" 136 ", " 137 "), parser.FEATURE),
        (GOOD.replace(" 136 ", " 0 "), parser.FEATURE),
        (GOOD.replace(" 136 ", " 99999999999999999999 "), parser.FIELD),
        (GOOD.replace(" 136 ", " 9 "), parser.FEATURE),
    ],
)
def test_malformed_line_is_counted_and_skipped(tmp_path: Path, line: str, kind: str) -> None:
    path = write(tmp_path, [GOOD, CLICK, line, CLICK, line])
    day = read_day(path)
    assert day.article.tolist() == [560620, 552077, 552077]
    assert day.ends.tolist() == [0, 4, 5, 6]
    assert day.problems == (SkippedLines(kind, 2, 3),)
    with pytest.raises(ValueError, match=r"2 × .* \(first at line 3\)"):
        read_day(path, strict=True)


def test_truncated_last_line(tmp_path: Path) -> None:
    day = read_day(write(tmp_path, [CLICK, GOOD[:-3]], end=""))
    assert len(day) == 1
    assert day.problems == (SkippedLines("truncated last line", 1, 2),)


def test_broken_gzip_keeps_what_came_before(tmp_path: Path) -> None:
    path = write(tmp_path, [f"{GOOD[:7]}{i} {GOOD[11:]}" for i in range(100, 999)])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    cut = read_day(path)
    assert 0 < len(cut) < 899
    assert SkippedLines("broken gzip", 1, len(cut) + 1) in cut.problems
    path.write_bytes(whole[:-8] + bytes(8))  # a wrong checksum
    spoilt = read_day(path)
    assert len(spoilt) == 899
    assert spoilt.problems == (SkippedLines("broken gzip", 1, 900),)


def test_gzip_of_several_members_and_padding(tmp_path: Path) -> None:
    path = write(tmp_path, [GOOD])
    path.write_bytes(2 * (path.read_bytes() + bytes(3)))
    day = read_day(path)
    assert len(day) == 2
    assert day.problems == ()


@pytest.mark.parametrize(
    "content",
    [b"", b"not gzip", gzip.compress(b""), gzip.compress(b"x\n")],
    ids=["empty", "no gzip", "empty gzip", "no line"],
)
def test_day_without_a_good_line_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ydata-fp-td-clicks-v2_0.20111002.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="no line of the news log's form"):
        read_day(path)


def test_file_without_line_ends_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "zeros.gz"
    path.write_bytes(gzip.compress(bytes(2 * parser.LONGEST)))
    with pytest.raises(ValueError, match="no line end within"):
        read_day(path)


def test_missing_file_and_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No such file"):
        read_day(tmp_path / "none.gz")
    with pytest.raises(ValueError, match="make-news"):
        log_files(tmp_path)


def test_more_pools_than_there_is_room_for(tmp_path: Path) -> None:
    lines = [f"1 id-{i} 0 |user 1 |id-{i} |id-{i + 1}" for i in range(1, 3_001)]
    day = read_day(write(tmp_path, lines + lines))
    assert len(day.pools) == 3_000
    assert day.pool.tolist() == 2 * list(range(3_000))
    assert all(pool.tolist() == [i + 1, i + 2] for i, pool in enumerate(day.pools))
    wide = "".join(f" |id-{i}" for i in range(1, parser.MOST_ARTICLES + 1))
    day = read_day(write(tmp_path, 200 * ["1 id-9 0 |user 1" + wide]))
    assert len(day.pools) == 1
    assert day.pools[0].tolist() == list(range(1, parser.MOST_ARTICLES + 1))


# Files that ask for too much


def test_a_pool_that_is_too_large_is_skipped(tmp_path: Path) -> None:
    pool = "".join(f" |id-{i}" for i in range(80_000, 0, -1))
    long, wide = "1 id-9 0 |user 1" + pool, parser.MOST_ARTICLES + 1
    day = read_day(write(tmp_path, [GOOD, *20 * [long]]))
    assert len(day) == 1
    assert day.problems == (SkippedLines("pool of more than 1,000 articles", 20, 2),)
    short = "".join(f" |id-{i}" for i in range(wide - 1, 0, -1))
    day = read_day(write(tmp_path, ["1 id-9 0 |user 1" + short]))
    assert day.pools[0].tolist() == list(range(1, wide))


def test_every_visit_may_have_a_pool_of_its_own(tmp_path: Path) -> None:
    count = 100_000
    lines = (f"1 id-{i} 0 |user 1 |id-{i} |id-{i + 500_000} |id-999999" for i in range(count))
    path = write(tmp_path, lines)
    day = read_day(path)
    assert len(day.pools) == len(day) == count
    assert day.pool.tolist() == list(range(count))
    assert day.pools[7].tolist() == [7, 500_007, 999_999]
    assert day.pools[-1].tolist() == [count - 1, count + 499_999, 999_999]


def test_pools_keep_the_order_of_their_visits(tmp_path: Path) -> None:
    lines = [f"1 id-{i % 300} 0 |user 1 |id-{i % 300} |id-{300 + i % 7}" for i in range(3_000)]
    day = read_day(write(tmp_path, [*lines[:50], "x", *lines[50:]]))
    for i, p in enumerate(day.pool):
        assert day.pools[p].tolist() == [i % 300, 300 + i % 7]
    assert len(day.pools) == 2_100


def test_an_expansion_bomb_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser, "SMALL", 1 << 22)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress((GOOD + "\n").encode() * 200_000))
    with pytest.raises(ValueError, match="expands to more than 100 times its size"):
        read_day(path)


def test_days_and_models_that_lie_are_refused_or_harmless() -> None:
    """A few of `python tests/forgery.py news 5000`."""
    counts, failures = forgery.fuzz_news(100)
    assert not failures
    assert min(counts.values()) > 0


def test_a_file_of_mostly_malformed_lines_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parser, "MOST_SKIPPED", 1_000)
    path = write(tmp_path, [GOOD, *1_000 * [""], GOOD])
    assert read_day(path).problems == (SkippedLines("wrong field", 1_000, 2),)
    path.write_bytes(gzip.compress(f"{GOOD}\n".encode() + b"\n" * (1 << 20)))
    with pytest.raises(ValueError, match="more than 1,000 malformed lines"):
        read_day(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
def test_what_is_no_file_is_no_day(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ydata-fp-td-clicks-v2_0.20111002.gz")
    with pytest.raises(ValueError, match="holds no news log"):
        log_files(tmp_path)


def test_a_file_of_very_many_members_is_read(tmp_path: Path) -> None:
    path = tmp_path / "members.gz"
    path.write_bytes(2_000 * gzip.compress(b"") + gzip.compress(f"{GOOD}\n".encode()))
    assert len(read_day(path)) == 1


def test_a_click_model_that_lies_is_refused(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = ClickModel.load(folder / "truth.npz")
    for wrong in (
        truth._replace(articles=truth.articles[::-1]),
        truth._replace(articles=truth.articles.astype(float)),
        truth._replace(weights=truth.weights[:, :5]),
        truth._replace(intercept=np.full_like(truth.intercept, np.nan)),
        truth._replace(intercept=np.full_like(truth.intercept, 1e300)),
        truth._replace(intercept=truth.intercept.astype(str)),
    ):
        wrong.save(tmp_path / "wrong.npz")
        with pytest.raises(ValueError, match=r"wrong.npz is no click model"):
            ClickModel.load(tmp_path / "wrong.npz")
    content = bytearray((folder / "truth.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "flipped.npz").write_bytes(content)
    (tmp_path / "text.npz").write_bytes(b"nothing")
    np.save(array := io.BytesIO(), truth.intercept)
    size = f"({len(truth.intercept)},)".encode()
    lies = {
        "huge": array.getvalue().replace(size.ljust(20), b"(999999999999999999,)"[:20]),
        "long": array.getvalue().replace(size.ljust(16), b"(9999999999999,)"),
        "cut": array.getvalue().replace(b"), }", b"   "),
        "bytes": b"no array",
    }
    for name, content in lies.items():
        with zipfile.ZipFile(tmp_path / f"{name}.npz", "w") as archive:
            for each in ClickModel._fields:
                archive.writestr(each + ".npy", content)
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("articles.npy", bytes(1 << 26))
    monkeypatch.setattr(clicks, "MOST_BYTES", 1 << 25)
    for name in ("flipped.npz", "text.npz", "bomb.npz", *(f"{lie}.npz" for lie in lies)):
        with pytest.raises(ValueError, match=rf"{name} is no click model"):
            ClickModel.load(tmp_path / name)


def test_a_killed_generator_leaves_nothing_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / ".ydata-fp-td-clicks-v2_0.20111002.gz.killed.part"
    left.write_bytes(b"half")
    make_news(tmp_path, days=1, lines=10)
    assert not left.exists()
    assert len(log_files(tmp_path)) == 1


def test_generated_log_has_the_form_and_says_so(folder: Path) -> None:
    for path in log_files(folder):
        day = read_day(path, strict=True)
        assert day.generated
        assert len(day) == 60_000
        assert {len(pool) for pool in day.pools} <= set(range(FEWEST, MOST + 1))
        assert len(day.pools) > 20  # articles come and go
        first = day.features[day.ends[:-1]]
        assert (first == 0).all()
        sizes = np.diff(day.ends)
        assert 0.05 < (sizes == 1).mean() < 0.15
        assert 15 < sizes.mean() < 22
        assert 0.02 < day.click.mean() < 0.08
        assert (np.diff(day.time) >= 0).all()


def test_displayed_article_is_uniform_in_the_pool(folder: Path) -> None:
    day = read_day(log_files(folder)[0])
    place = np.array(
        [np.searchsorted(day.pools[p], a) for p, a in zip(day.pool, day.article, strict=True)]
    )
    size = np.array([len(pool) for pool in day.pools])[day.pool]
    u = (place + 0.5) / size
    # mean of N uniform places: 1/2 ± 1/√(12 N); 4 standard errors, false alarm 6e-5
    assert abs(u.mean() - 0.5) < 4 / np.sqrt(12 * len(day))


def test_clicks_follow_the_truth(folder: Path) -> None:
    day = read_day(log_files(folder)[0])
    truth = ClickModel.load(folder / "truth.npz")
    rates = click_rates(truth, day)
    p = rates[np.arange(len(day)), np.searchsorted(truth.articles, day.article)]
    # calibration within tenths of the predicted rate, each within 4.5 standard errors;
    # false alarm 10 × 7e-6
    order = np.argsort(p)
    for part in np.array_split(order, 10):
        error = day.click[part].mean() - p[part].mean()
        assert abs(error) < 4.5 * np.sqrt((p[part] * (1 - p[part])).sum()) / len(part)
    assert rates.std(axis=0).mean() > 0.01  # they depend on the user
    assert rates.mean(axis=0).std() > 0.005  # and on the article


def test_generator_is_deterministic(folder: Path, tmp_path: Path) -> None:
    [again] = make_news(tmp_path, days=1, lines=60_000, seed=3, workers=1)
    first = log_files(folder)[0]
    assert again.read_bytes() == first.read_bytes()  # whatever the number of days and workers
    [other] = make_news(tmp_path, days=1, lines=10, seed=4)
    assert gzip.decompress(other.read_bytes())[:999] != gzip.decompress(first.read_bytes())[:999]


def test_generator_refuses_nothing(tmp_path: Path) -> None:
    for wrong in ({"days": 0}, {"lines": 0}, {"lines": 10**20}):
        with pytest.raises(ValueError, match="expected 1 to 365 days of 1 to 1,000,000,000 lines"):
            make_news(tmp_path, **wrong)
    for wrong in ({"seed": -1}, {"workers": 0}):
        with pytest.raises(ValueError, match="must be a whole number"):
            make_news(tmp_path, **wrong)
    assert not list(tmp_path.iterdir())


def test_fitted_click_model_finds_the_truth(folder: Path) -> None:
    day = read_day(log_files(folder)[0])
    fitted = fit_clicks(day, impressions=1_000)
    shown = {a: int((day.article == a).sum()) for a in np.unique(day.article)}
    assert fitted.articles.tolist() == [a for a, n in shown.items() if n > 1_000]
    truth = ClickModel.load(folder / "truth.npz")
    rates = click_rates(truth, day)[:, np.searchsorted(truth.articles, fitted.articles)]
    guess = click_rates(fitted, day)
    # a free intercept: fitted clicks add up to the observed ones
    for a, article in enumerate(fitted.articles):
        seen = day.article == article
        assert guess[seen, a].sum() == pytest.approx(day.click[seen].sum(), rel=1e-4)
    level = np.corrcoef(guess.mean(axis=0), rates.mean(axis=0))[0, 1]
    assert level > 0.9
    with pytest.raises(ValueError, match="lower the bound"):
        fit_clicks(day, impressions=60_000)


def test_article_without_a_click_has_a_rate(tmp_path: Path) -> None:
    day = read_day(write(tmp_path, 9 * [GOOD]))
    model = fit_clicks(day, impressions=5)
    assert click_rates(model, day) == pytest.approx(np.full((9, 1), 0.5 / 10))
