"""Who runs the isolated cases, and in which order."""

from harness.executors.durations import read_durations, record_durations
from harness.executors.local import LocalPool
from harness.executors.ray_cluster import LostNodeError, RayCluster
from harness.executors.schedule import Job, Schedule

__all__ = ["Job", "LocalPool", "LostNodeError", "RayCluster", "Schedule", "read_durations", "record_durations"]
