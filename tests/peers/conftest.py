"""What the peers' suites gave is printed at the end of a run of pytest."""

import pytest

COUNTS = pytest.StashKey[dict[str, str]]()


@pytest.fixture(scope="session")
def counts(request):
    """Lines for the summary, by suite."""
    return request.config.stash.setdefault(COUNTS, {})


def pytest_terminal_summary(terminalreporter, config):
    for name, line in config.stash.get(COUNTS, {}).items():
        terminalreporter.write_line(f"peers: {name}: {line}")
