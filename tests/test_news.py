"""The news log: reading, malformed lines, the cache, the generator and the click model."""

import gzip
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from tsucb.news import ClickModel, fit_clicks, log, log_files, make_news, read_day
from tsucb.news.generate import LARGEST, SMALLEST

GOOD = "1317513291 id-560620 0 |user 1 9 11 136 |id-552077 |id-555224 |id-560620"
CLICK = "1317513292 id-552077 1 |user 1 |id-552077 |id-560620"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "cache_folder", lambda: tmp_path / "cache")


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
        ("", log.FIELD),
        (" " + GOOD, log.FIELD),
        (GOOD + " x", log.FIELD),
        (GOOD + "|", log.FIELD),
        (GOOD.replace("1317513291", "-5"), log.FIELD),
        (GOOD.replace(" 0 ", " 2 "), log.FIELD),
        (GOOD.replace(" 0 ", " 01 "), log.FIELD),
        (GOOD.replace("|user", "|usr"), log.FIELD),
        (GOOD.replace("1 9 11 136 ", ""), log.FIELD),
        (GOOD.replace(" 9 ", " x "), log.FIELD),
        (GOOD.replace("|user ", "|user"), log.FIELD),
        (GOOD.replace("id-560620 0", "560620 0"), log.FIELD),
        (GOOD.replace("id-555224", "id-"), log.FIELD),
        (GOOD.replace("id-555224", "id-1234567890"), log.FIELD),
        (GOOD.replace("id-555224", "id-552077"), log.FIELD),
        (GOOD[: GOOD.index(" |id")], log.FIELD),
        (GOOD.replace("id-560620 0", "id-560621 0"), log.DISPLAYED),
        (GOOD.replace(" 136 ", " 137 "), log.FEATURE),
        (GOOD.replace(" 136 ", " 0 "), log.FEATURE),
        (GOOD.replace(" 136 ", " 99999999999999999999 "), log.FIELD),
        (GOOD.replace(" 136 ", " 9 "), log.FEATURE),
    ],
)
def test_malformed_line_is_counted_and_skipped(tmp_path: Path, line: str, kind: int) -> None:
    path = write(tmp_path, [GOOD, CLICK, line, CLICK, line])
    day = read_day(path)
    assert day.article.tolist() == [560620, 552077, 552077]
    assert day.ends.tolist() == [0, 4, 5, 6]
    assert day.problems == (log.Problem(log.KINDS[kind], 2, 3),)
    for _ in range(2):  # the second time from the cache
        with pytest.raises(ValueError, match=r"2 × .* \(first at line 3\)"):
            read_day(path, strict=True)


def test_truncated_last_line(tmp_path: Path) -> None:
    day = read_day(write(tmp_path, [CLICK, GOOD[:-3]], end=""))
    assert len(day) == 1
    assert day.problems == (log.Problem("truncated last line", 1, 2),)


def test_broken_gzip_keeps_what_came_before(tmp_path: Path) -> None:
    path = write(tmp_path, [f"{GOOD[:7]}{i} {GOOD[11:]}" for i in range(100, 999)])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    cut = read_day(path)
    assert 0 < len(cut) < 899
    assert log.Problem("broken gzip", 1, len(cut) + 1) in cut.problems
    path.write_bytes(whole[:-8] + bytes(8))  # a wrong checksum
    spoilt = read_day(path)
    assert len(spoilt) == 899
    assert spoilt.problems == (log.Problem("broken gzip", 1, 900),)


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
    for _ in range(2):
        with pytest.raises(ValueError, match="no line of the news log's form"):
            read_day(path)
    assert not list((tmp_path / "cache").rglob("*.parquet"))


def test_file_without_line_ends_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "zeros.gz"
    path.write_bytes(gzip.compress(bytes(2 * log.LONGEST)))
    with pytest.raises(ValueError, match="no line end within"):
        read_day(path)


def test_missing_file_and_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No such file"):
        read_day(tmp_path / "none.gz")
    with pytest.raises(ValueError, match="make-news"):
        log_files(tmp_path)


def test_changed_source_is_read_again_and_unchanged_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, [GOOD])
    assert len(read_day(path)) == 1
    write(tmp_path, [GOOD, CLICK])
    assert len(read_day(path)) == 2
    monkeypatch.delattr(log, "convert")
    assert len(read_day(path)) == 2
    [cached] = (tmp_path / "cache").rglob("*.parquet")
    cached.write_bytes(b"garbage")
    with pytest.raises(NameError):  # a broken cache file would be made anew
        read_day(path)


def test_more_pools_than_there_is_room_for(tmp_path: Path) -> None:
    lines = [f"1 id-{i} 0 |user 1 |id-{i} |id-{i + 1}" for i in range(1, 3_001)]
    day = read_day(write(tmp_path, lines + lines))
    assert len(day.pools) == 3_000
    assert day.pool.tolist() == 2 * list(range(3_000))
    assert all(pool.tolist() == [i + 1, i + 2] for i, pool in enumerate(day.pools))
    wide = "".join(f" |id-{i}" for i in range(1, 200_001))
    day = read_day(write(tmp_path, ["1 id-9 0 |user 1" + wide]))
    assert len(day.pools[0]) == 200_000


def test_reading_in_small_blocks_changes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = log_files(folder)[0]
    whole = read_day(path)
    monkeypatch.setattr(log, "BLOCK", 10_007)
    monkeypatch.setattr(log, "VERSION", -1)
    parts = read_day(path)
    for field in ("time", "article", "click", "features", "ends", "pool"):
        assert np.array_equal(getattr(whole, field), getattr(parts, field)), field


def test_generated_log_has_the_form_and_says_so(folder: Path) -> None:
    for path in log_files(folder):
        day = read_day(path, strict=True)
        assert day.generated
        assert len(day) == 60_000
        assert {len(pool) for pool in day.pools} <= set(range(SMALLEST, LARGEST + 1))
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
    rates = truth.rates(day)
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
    with pytest.raises(ValueError, match="expected 1 to 365 days"):
        make_news(tmp_path, days=0)


def test_fitted_click_model_finds_the_truth(folder: Path) -> None:
    day = read_day(log_files(folder)[0])
    fitted = fit_clicks(day, impressions=1_000)
    shown = {a: int((day.article == a).sum()) for a in np.unique(day.article)}
    assert fitted.articles.tolist() == [a for a, n in shown.items() if n > 1_000]
    truth = ClickModel.load(folder / "truth.npz")
    rates = truth.rates(day)[:, np.searchsorted(truth.articles, fitted.articles)]
    guess = fitted.rates(day)
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
    assert model.rates(day) == pytest.approx(np.full((9, 1), 0.5 / 10))
