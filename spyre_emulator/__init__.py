"""A software Spyre: registers the PyTorch device `spyre`. Knows nothing of the harness."""
