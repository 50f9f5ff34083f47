"""Settings that all tests share."""

from __future__ import annotations

import os
import sys

# Workers must run the interpreter of the tests, whatever `python3` means on this machine.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
