"""Helpers that several folders of tests use."""

import pytest

pytest.register_assert_rewrite("tests.support")  # before its modules are imported
