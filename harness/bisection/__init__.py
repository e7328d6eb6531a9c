"""Which upstream release changed a case: search, journal and isolated environments."""

from harness.bisection.environments import InstallError, Layer, available, between, build, releases
from harness.bisection.journal import Journal
from harness.bisection.search import Answer, Axis, Culprit, Finding, Probe, Reading, bisect
from harness.bisection.survey import Survey, survey

__all__ = [
    "Answer",
    "Axis",
    "Culprit",
    "Finding",
    "InstallError",
    "Journal",
    "Layer",
    "Probe",
    "Reading",
    "Survey",
    "available",
    "between",
    "bisect",
    "build",
    "releases",
    "survey",
]
