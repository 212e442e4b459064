"""Products on two threads, whatever the machine has: the rest of the tests may run with one."""

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True)
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        yield
