"""End-to-end model conformance and regression harness for the IBM Spyre accelerator."""
