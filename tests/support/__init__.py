"""Helpers that several folders of tests use."""

import pytest

# Before these modules are imported.
pytest.register_assert_rewrite("tests.support.planned_joins", "tests.support.waiting")
