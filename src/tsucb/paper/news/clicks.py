"""Click rates of users on articles: one logistic regression for each article."""

import os
import tokenize
import zipfile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsucb.checks import MISFITS, within
from tsucb.extras import require
from tsucb.files import written_whole
from tsucb.paper.news.day import FEATURES, Day

MOST_BYTES = 1 << 30  # of a click model; that of a log has a few million
# Beside `MISFITS`, NumPy raises these for a file that is cut or encrypted or has a broken header.
BROKEN = (EOFError, RuntimeError, tokenize.TokenError, zipfile.BadZipFile)


class ClickModel(NamedTuple):
    """P(click) = 1 / (1 + exp(−(b_a + Σ_f w_{a,f}))), summed over the user's features f.

    Parameters
    ----------
    articles : (A,) article numbers in increasing order
    intercept : (A,) b
    weights : (A, 136) w
    """

    articles: NDArray[np.int32]
    intercept: NDArray[np.float64]
    weights: NDArray[np.float64]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to an `.npz` file."""
        with written_whole(path) as file:
            np.savez(file, **self._asdict())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "ClickModel":
        """Read a model that `save` wrote; raise ValueError for any other file."""
        try:
            with zipfile.ZipFile(path) as archive:
                members = archive.infolist()
                if sum(member.file_size for member in members) > MOST_BYTES:
                    raise ValueError(f"it expands to more than {MOST_BYTES:,} bytes")
                if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                    raise ValueError("it is compressed")
            with np.load(path) as file:
                model = cls(**{name: np.asarray(file[name]) for name in cls._fields})
            model.check()
        except (*MISFITS, *BROKEN) as error:
            reason = " ".join(str(error).split())[:300]
            raise ValueError(f"{path} is no click model as `save` writes them: {reason}") from None
        return model

    def check(self) -> None:
        """Raise ValueError if a shape, a type or a value is wrong."""
        size = self.articles.size
        kinds = ((size,), np.int32), ((size,), np.float64), ((size, FEATURES), np.float64)
        for name, (shape, kind) in zip(self._fields, kinds, strict=True):
            values = getattr(self, name)
            if values.shape != shape or values.dtype != kind or not within(values):
                raise ValueError(f"{name} are not finite {kind.__name__} numbers of shape {shape}")
        if not (np.diff(self.articles) > 0).all():
            raise ValueError("articles are not in increasing order")


def fit_clicks(day: Day, *, impressions: int = 5_000) -> ClickModel:
    """Fit one logistic regression for each article displayed more often than `impressions` times.

    The paper says no more than "a logistic regression model", so the loss is scikit-learn's:
    the summed log-loss plus ‖w‖²/2, without a penalty on the intercept. The solver is Newton's
    method: with 136 features it takes six steps, the default solver a hundred. An article that
    nobody, or everybody, clicked on gets the rate (clicks + ½) / (impressions + 1) for all users.

    References
    ----------
    Baek and Farias (2023), Section 4.2.
    """
    require("paper", "sklearn")
    from sklearn.linear_model import LogisticRegression

    articles, count = np.unique(day.article, return_counts=True)
    articles = articles[count > impressions]
    if not len(articles):
        raise ValueError(
            f"no article of day {day.name} was displayed more than {impressions:,} times (at most "
            f"{count.max():,} of {len(day):,} visits): read a longer log or lower the bound"
        )
    x = day.users()
    intercept = np.empty(len(articles))
    weights = np.zeros((len(articles), FEATURES))
    for a, article in enumerate(articles):
        shown = np.flatnonzero(day.article == article)
        clicks = day.click[shown]
        total = int(clicks.sum())
        if 0 < total < len(shown):
            fit = LogisticRegression(solver="newton-cholesky", tol=1e-6).fit(x[shown], clicks)
            intercept[a], weights[a] = fit.intercept_[0], fit.coef_[0]
        else:
            intercept[a] = np.log((total + 0.5) / (len(shown) - total + 0.5))
    return ClickModel(articles.astype(np.int32), intercept, weights)
