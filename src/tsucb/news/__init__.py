"""The news click log: its reader, a generator of logs of the same form, and its click model."""

from tsucb.news.clicks import ClickModel, fit_clicks
from tsucb.news.generate import make_news
from tsucb.news.log import Day, Problem, log_files, read_day

__all__ = ["ClickModel", "Day", "Problem", "fit_clicks", "log_files", "make_news", "read_day"]
