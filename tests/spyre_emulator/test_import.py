"""Loading: only on request, never beside torch_spyre, and with a clear word about a torch that does not fit."""

import subprocess
import sys

import pytest

from spyre_emulator import settings


def python(code: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import torch; torch.ones(1, device='spyre')", "Expected one of cpu, cuda"),
        (
            "import sys, types; sys.modules['torch_spyre'] = types.ModuleType('torch_spyre'); import spyre_emulator",
            "torch_spyre is loaded and owns the device 'spyre'",
        ),
        (
            "import torch; del torch._C._acc.create_empty_tensor; import spyre_emulator",
            "torch._C._acc.create_empty_tensor is missing; it was tested with torch 2.13",
        ),
        (
            "import torch; torch.utils.rename_privateuse1_backend('other'); import spyre_emulator",
            "another backend already took PrivateUse1 as 'other'",
        ),
    ],
    ids=["torch alone", "torch_spyre", "missing private call", "taken"],
)
def test_refusals(code, expected):
    result = python(code)
    assert result.returncode != 0
    assert expected in result.stderr


def test_environment_variables_are_read_and_checked():
    result = python(
        "import os; os.environ.update(SENCORES='4', SPYRE_EMULATOR_ROUNDING='truncate', SPYRE_EMULATOR_C_KERNEL='0')\n"
        "import spyre_emulator; c = spyre_emulator.configuration()\n"
        "print(c['sencores'], c['rounding'], c['rounding_kernel'])\n"
        "os.environ['SENCORES'] = '33'\n"
        "spyre_emulator.settings.from_environment(os.environ)"
    )
    assert result.stdout.split() == ["4", "truncate", "torch"]
    assert "SENCORES='33': must be a number from 1 to 32" in result.stderr


@pytest.mark.parametrize("variable", ["SENCORES", "SPYRE_EMULATOR_DEVICE_MEMORY"])
def test_digits_that_are_no_number_are_told_with_their_variable(variable):
    with pytest.raises(settings.SettingError, match=variable):
        settings.from_environment({variable: "\u00b2"})
