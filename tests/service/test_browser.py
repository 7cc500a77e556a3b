"""Every page in a real browser, on a laptop and on a phone."""

import shutil
from pathlib import Path

import pytest

from tests.service.conftest import Clock
from tests.service.serving import LOOP, served
from tests.service.test_page import visit

pytest.importorskip("selenium", reason="the browser is driven by selenium")

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-sync", "--disable-background-networking", "--disable-component-update",
]  # fmt: skip
# The excess width of the page, elements with text below 12 px, and those beyond the right edge.
SEEN = """
const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
const small = [...document.querySelectorAll("main *")].filter(each =>
  each.childNodes.length && [...each.childNodes].some(n => n.nodeType == 3 && n.data.trim()) &&
  each.getClientRects().length && parseFloat(getComputedStyle(each).fontSize) < 12);
const parts = document.querySelectorAll("main td, main b, main text, main button, main input");
const outside = [...parts].filter(each => each.getClientRects().length && !each.closest(".scroll")
  && each.getBoundingClientRect().right > innerWidth + 1);
return [wide, small.map(e => e.outerHTML.slice(0, 80)), outside.map(e => e.outerHTML.slice(0, 80))];
"""


@pytest.fixture(scope="module")
def drinks(tmp_path_factory):
    clock = Clock()
    folder = tmp_path_factory.mktemp("browser")
    with served(folder / "data", clock, reward_wait=60.0, exploration=0.3, holdout=0.2) as found:
        visit(found, clock, 200)
        clock.pass_by(61)
        visit(found, clock, 5)
        yield found


@pytest.fixture(params=[(1280, 900), (390, 844)], ids=["laptop", "phone"])
def browser(request, tmp_path: Path):
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("there is no Chromium; install Debian's chromium and chromium-driver")
    width, height = request.param
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--window-size={width},{height}", f"--user-data-dir={tmp_path / 'me'}"):
        options.add_argument(flag)
    if width < 500:
        metrics = {"width": width, "height": height, "pixelRatio": 2.0}
        options.add_experimental_option("mobileEmulation", {"deviceMetrics": metrics})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


def test_every_page_works_and_fits(drinks, browser):
    def check(path: str) -> None:
        wide, small, outside = browser.execute_script(SEEN)
        assert (wide, small, outside) == (0, [], []), path

    def press(form: str, then: str) -> None:
        """Send a form, and wait for a text on the page that follows."""
        browser.find_element("css selector", f"form[action$='{form}'] button:not([name])").click()
        expect(then)

    def expect(text: str) -> None:
        waiting = WebDriverWait(browser, 60, ignored_exceptions=[WebDriverException])
        waiting.until(lambda b: text in " ".join(b.find_element("tag name", "main").text.split()))

    browser.get(f"{drinks.url}/")
    check("login")
    browser.find_element("id", "key").send_keys("wrong")
    press("/login", "This key opens nothing")
    browser.find_element("id", "key").send_keys(drinks.server_key)
    press("/login", "A new loop")
    check("loops")
    browser.get(f"{drinks.url}/api")
    for each in browser.find_elements("tag name", "summary")[:3]:
        each.click()
    check("api")
    browser.get(f"{drinks.url}/loops/{LOOP}")
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    check("loop")
    assert len(browser.find_elements("css selector", ".plot path.line")) >= 2
    press("/evaluate", "decisions, by doubly robust")
    check("evaluate")
    browser.find_element("id", "add").send_keys("water")
    press("/arms", "Added water")
    press("/keys", "not shown again")
    check("keys")
    field = browser.find_element("id", "s-note")
    field.clear()
    field.send_keys(str(browser.get_window_size()))
    press("/settings", "Changed: note")
    browser.find_element("id", "remove").send_keys("water")
    browser.find_element("id", "remove").submit()
    expect("Removed water")
    new = f"new{browser.get_window_size()['width']}"
    browser.get(f"{drinks.url}/")
    browser.find_element("id", "name").send_keys(new)
    browser.find_element("id", "arms").send_keys("tea, milk")
    press("/loops", "These are its keys")
    check("new loop")
    browser.find_element("link text", "Go on").click()
    expect("Not enough yet to draw")
    check("empty loop")
    for form, then in [("/reset", "is forgotten"), ("/delete", "A new loop")]:
        press(form, f"Type the name of the loop, {new}, to confirm")
        browser.find_element("id", f"confirm-{form[1:]}").send_keys(new)
        press(form, then)
    assert new not in drinks.service.loops
    press("/keys", "This is the new key")
    check("key of the server")
    browser.get(f"{drinks.url}/loops/none")
    check("problem")
    expected = ("400", "401", "404", "favicon")  # forms that were refused, pages that are not there
    log = [line["message"] for line in browser.get_log("browser") if line["level"] == "SEVERE"]
    assert [m for m in log if not any(word in m for word in expected)] == []
    browser.get(f"{drinks.url}/logout")
    assert "Sign in" in browser.title
