"""HTML pages from templates: for agents, comparisons, experiments and the service.

All values of a template are escaped. A page needs no network, and fits any width, light and dark.
"""

from __future__ import annotations

import base64
import functools
import math
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tsucb.pages.charts import moment

if TYPE_CHECKING:
    import jinja2


def number(value: float | None, digits: int = 3, sign: bool = False) -> str:
    """Return a number in few digits, with a typographic minus sign.

    >>> number(0.12345), number(-2.0, sign=True), number(float("nan")), number(float("inf"))
    ('0.123', '−2', '–', '∞')
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:{'+' if sign else ''}.{digits}g}".replace("-", "−")


def utc(seconds: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a time as text, with its time zone.

    >>> utc(0.0)
    '1970-01-01 00:00:00 UTC'
    """
    return f"{moment(seconds, form)} UTC"


def sentence(text: object) -> str:
    """Return a text as a sentence.

    >>> sentence("there is no loop 'a'")
    "There is no loop 'a'."
    """
    whole = str(text)
    return f"{whole[:1].upper()}{whole[1:].rstrip('.')}."


def svg_data(svg: bytes) -> str:
    """Return a data URL with a picture."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


@functools.cache
def environment() -> jinja2.Environment:
    """Return the environment of all templates."""
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.PackageLoader("tsucb.pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"number": number, "utc": utc, "sentence": sentence, "svg_data": svg_data}
    made.globals["asset"] = asset
    return made


@functools.cache
def asset(name: str) -> str:
    """Return the text of the style sheet or of the script."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def render(template: str, **values: Any) -> str:
    """Return the page of a template with these values."""
    return environment().get_template(template).render(**values)
