"""The results of one night through this report, pytest-html and Allure, side by side in one run."""
