"""The page to play with, in a real browser: its numbers are those of the package."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tsucb

pytest.importorskip("selenium", reason="the browser is driven by selenium")

from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

PAGE = Path(__file__).parents[1] / "docs" / "play.html"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-sync", "--disable-background-networking", "--disable-component-update",
    "--window-size=1200,1000",
]  # fmt: skip


def test_the_page_needs_nothing_else() -> None:
    text = PAGE.read_text()
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text
    assert "<link" not in text
    assert "src=" not in text


def started(profile: Path) -> Any:
    """Return a browser with an empty profile; skip the test where there is none."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("there is no Chromium; install Debian's chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(DRIVER))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    driver = started(tmp_path_factory.mktemp("me"))
    driver.get(PAGE.as_uri())
    yield driver
    assert driver.get_log("browser") == []
    driver.quit()


def chances(page: Any) -> tuple[Any, Any, tsucb.Belief]:
    """Return the page's chances of TS-UCB and of TS, and the belief that it shows."""
    own, thompson, arms = page.execute_script(
        "return [play.chances(), play.thompson(), play.arms()]"
    )
    means, radii = [arm["mean"] for arm in arms], [arm["radius"] for arm in arms]
    return np.array(own), np.array(thompson), tsucb.GaussianBelief(means, radii)


def test_chances_are_those_of_the_package(page: Any) -> None:
    own, thompson, belief = chances(page)
    np.testing.assert_allclose(own, tsucb.TSUCB(1).probabilities(belief), atol=1e-6)
    np.testing.assert_allclose(thompson, tsucb.Thompson().probabilities(belief), atol=1e-3)


@pytest.mark.parametrize("kind", ["mean", "radius"])
def test_dragging_moves_an_arm(page: Any, kind: str) -> None:
    before, _, old = chances(page)
    handle = page.find_element(By.CSS_SELECTOR, f'.handle[data-arm="3"][data-kind="{kind}"]')
    ActionChains(page).click_and_hold(handle).move_by_offset(60, 0).release().perform()
    own, _, belief = chances(page)
    changed = belief.mean - old.mean if kind == "mean" else belief.std - old.std
    assert changed[3] > 0.05
    assert (np.delete(changed, 3) == 0).all()
    assert own[3] > before[3]
    np.testing.assert_allclose(own, tsucb.TSUCB(1).probabilities(belief), atol=1e-6)


def test_many_samples_and_a_drawn_world(page: Any) -> None:
    page.find_element(By.CSS_SELECTOR, "#samples option:nth-child(2)").click()
    own, _, belief = chances(page)
    rng, decisions = np.random.default_rng(0), 2_000
    drawn = [tsucb.TSUCB(10).choose(belief, rng).arm for _ in range(decisions)]
    share = np.bincount(drawn, minlength=5) / decisions
    # Both are estimates, from 1,500 and 2,000 draws: five standard errors of their difference.
    np.testing.assert_allclose(own, share, atol=5 * np.sqrt(0.25 / 1_500 + 0.25 / 2_000))
    page.find_element(By.ID, "draw").click()
    assert "is the first to touch it" in page.find_element(By.ID, "say").text


def test_the_race_agrees_with_the_simulator(page: Any) -> None:
    arms, steps, runs = 5, 300, 60
    found = page.execute_script(f"return play.race(1, {arms}, {steps}, {runs})")
    rivals = [tsucb.TSUCB(1), tsucb.Thompson(), tsucb.UCB1(), tsucb.IDS(100)]
    result = tsucb.simulate(
        tsucb.KArmedBandit(arms), tsucb.BernoulliArms(), rivals, horizon=steps, runs=200, seed=3
    )
    for policy, own in zip(rivals, found, strict=True):
        final = result.final(policy.name)
        error = np.hypot(final.std(ddof=1) / np.sqrt(final.size), own["half"] / 1.96)
        assert own["n"] == runs
        # A false alarm once in 15,000 for each policy.
        assert abs(own["mean"] - final.mean()) < 4 * error, policy
    rows = page.find_elements(By.CSS_SELECTOR, "#standings tr")
    assert [row.get_attribute("data-policy") for row in rows] == [str(p) for p in rivals]


def test_on_a_phone_everything_is_in_sight(page: Any) -> None:
    """Nothing is wider than the screen, and the chances stand beside the arms."""
    try:
        size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        page.get(PAGE.as_uri())
        edges = page.execute_script(
            "return [...document.querySelectorAll('svg text, td, th')]"
            ".filter(e => e.getClientRects().length).map(e => e.getBoundingClientRect().right)"
        )
        assert max(edges) <= 390
        assert page.execute_script("return document.documentElement.scrollWidth") <= 390
        shown = [text.text for text in page.find_elements(By.CSS_SELECTOR, "#stage text")]
        assert sum(text.endswith("%") for text in shown) == 10
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.get(PAGE.as_uri())
