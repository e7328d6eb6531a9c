"""A failing case to the first wrong module, and to the first wrong op inside it."""

from harness.localize.fusion import Fusion
from harness.localize.modules import Compare, Forward, Taken, modules, out_of_proportion, wrong
from harness.localize.ops import Execution
from harness.localize.search import LIMIT, Device, Search, first_wrong
from harness.localize.variants import check_variants

__all__ = [
    "LIMIT",
    "Compare",
    "Device",
    "Execution",
    "Forward",
    "Fusion",
    "Search",
    "Taken",
    "check_variants",
    "first_wrong",
    "modules",
    "out_of_proportion",
    "wrong",
]
