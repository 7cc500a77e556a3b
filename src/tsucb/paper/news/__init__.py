"""The news click log: its reader, a generator of logs of the same form, and its click model."""

from tsucb.paper.news.clicks import ClickModel, fit_clicks
from tsucb.paper.news.day import Day, SkippedLines, is_generated, log_files
from tsucb.paper.news.generate import make_news
from tsucb.paper.news.parser import read_day

__all__ = [
    "ClickModel",
    "Day",
    "SkippedLines",
    "fit_clicks",
    "is_generated",
    "log_files",
    "make_news",
    "read_day",
]
