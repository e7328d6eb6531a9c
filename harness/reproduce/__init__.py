"""One defect in a folder: a short script, minimal inputs, environment, expected and observed numbers."""

from harness.reproduce.folder import Defect, write_graph, write_op
from harness.reproduce.reduce import reduced

__all__ = ["Defect", "reduced", "write_graph", "write_op"]
