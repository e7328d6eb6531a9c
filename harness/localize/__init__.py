"""A failing case to the first wrong module, and to the first wrong op inside it."""

from harness.localize.modules import Compare, Forward, Taken, modules, out_of_proportion, wrong

__all__ = ["Compare", "Forward", "Taken", "modules", "out_of_proportion", "wrong"]
