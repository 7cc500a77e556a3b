"""Work in another process, which waits for more."""

import os
import signal

import pytest

from tsucb.service import scheduling
from tsucb.service.scheduling import in_process


def test_a_process_waits_for_more_work_and_is_replaced_if_it_ends():
    scheduling._waiting.clear()
    first = in_process(os.getpid)
    assert first != os.getpid()
    assert in_process(os.getpid) == first
    with pytest.raises(ZeroDivisionError):
        in_process(divmod, 1, 0)
    assert in_process(os.getpid) == first
    os.kill(first, signal.SIGKILL)
    assert in_process(os.getpid) != first


def test_work_that_ends_every_process_is_one_sentence():
    with pytest.raises(RuntimeError, match="has ended"):
        in_process(os._exit, 3)
