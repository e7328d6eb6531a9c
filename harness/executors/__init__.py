"""Who runs the isolated cases."""

from harness.executors.local import LocalPool

__all__ = ["LocalPool"]
