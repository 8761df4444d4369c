"""What all soaks have."""
import pytest


def pytest_itemcollected(item):
    # A guard against hangs; what is judged begins after --seconds.
    item.add_marker(pytest.mark.timeout(900 + 2 * item.config.getoption("seconds")))
