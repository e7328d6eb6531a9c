"""Every test here runs with the device registered; its two expected warnings are no errors."""

from pathlib import Path

import pytest
import torch

import spyre_emulator

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::spyre_emulator.fallbacks.FallbackWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::spyre_emulator.dtypes.DowncastWarning"))


@pytest.fixture(autouse=True)
def _one_thread_and_seed():
    assert spyre_emulator.__version__
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)
