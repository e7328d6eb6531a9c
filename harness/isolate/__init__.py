"""One case, one process: timeout, crash, memory, hang -> an Outcome, never an exception."""

from harness.isolate.supervise import Ended, Isolator, Limits

__all__ = ["Ended", "Isolator", "Limits"]
