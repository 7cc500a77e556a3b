"""A day of the news log as logged data, for replay."""

import numpy as np

from tsucb.logs.logged_data import LoggedData
from tsucb.paper.news.clicks import users
from tsucb.paper.news.day import Day


def news_events(day: Day) -> LoggedData:
    """Return a day of the news log as logged data; articles were uniform in their pool."""
    articles = np.unique(np.concatenate(day.pools))
    return LoggedData(
        np.searchsorted(articles, day.article),
        day.click,
        users(day).astype(np.uint8).toarray(),
        available=([np.searchsorted(articles, pool) for pool in day.pools], day.pool),
        uniform=True,
    )
