"""The conformance tests themselves: what users run."""
