"""One case, one process: timeout, crash, memory, hang -> an Outcome, never an exception."""

from harness.isolate.child import NO_DISK
from harness.isolate.health import RETRIED, DeviceHealth
from harness.isolate.server import SECRET_NAME
from harness.isolate.supervise import STALL_SECONDS, Ended, Isolator, Limits

__all__ = ["NO_DISK", "RETRIED", "SECRET_NAME", "STALL_SECONDS", "DeviceHealth", "Ended", "Isolator", "Limits"]
