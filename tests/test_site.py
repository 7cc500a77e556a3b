"""The site: it builds without a warning, fetches nothing, and is searched from disk."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.test_play import started

pytest.importorskip("mkdocs", reason="the site is built by a tool of tsucb[docs]")

from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(out)],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_pages_fetch_nothing(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        fetched = re.findall(
            r"<(?:script|img|iframe|source)[^>]*src(?:set)?=\"?(https?:[^\s\">]+)", text
        )
        fetched += re.findall(r"<link rel=\"?stylesheet\"?[^>]*href=\"?(https?:[^\s\">]+)", text)
        assert not fetched, page.name
    assert (site / "play.html").exists()


def test_the_navigation_has_at_most_eight_entries() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2].partition("\n\n")[0]
    assert 3 < len(re.findall(r"^  - ", nav, re.MULTILINE)) <= 8


def test_every_page_is_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text()
    docs = ROOT / "docs"
    pages = [p.relative_to(docs) for p in docs.rglob("*.md") if "results" not in p.parts]
    assert [str(page) for page in pages if f": {page}\n" not in nav] == []


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    driver = started(tmp_path)
    yield driver
    assert driver.get_log("browser") == []
    driver.quit()


def test_the_search_works_from_disk(site: Path, browser: Any) -> None:
    browser.get((site / "index.html").as_uri())
    wait = WebDriverWait(browser, 20)
    browser.execute_script("document.querySelector('[data-md-toggle=search]').click()")
    box = browser.find_element(By.CSS_SELECTOR, "input.md-search__input")
    wait.until(lambda _: box.is_displayed())
    box.send_keys("cold start")
    found = wait.until(
        lambda _: browser.find_elements(By.CSS_SELECTOR, ".md-search-result__article")
    )
    assert any("Glossary" in each.text for each in found)
