"""The one step that setuptools does not know: compiling the Scala shim into a jar, which the wheel carries."""

import os
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent


class BuildWithJar(build_py):
    """Builds the jar for the PySpark of the build environment, and for those that `SPARKEXT_PYSPARK` names.

    `SPARKEXT_PYSPARK` lists folders of further PySpark packages, of other minor versions, with ":" between them.
    """

    def run(self) -> None:
        """Build the packages, then the jars into them. For an editable install `python -m sparkext jar` does that."""
        super().run()
        if self.editable_mode:
            return
        sys.path.insert(0, str(ROOT))
        from sparkext.jar import JAR_FOLDER, build_jar, installed_pyspark

        others = [Path(folder) for folder in os.environ.get("SPARKEXT_PYSPARK", "").split(":") if folder]
        for pyspark in [installed_pyspark(), *others]:
            jar = build_jar(pyspark)
            target = Path(self.build_lib) / "sparkext" / JAR_FOLDER.name / jar.name
            self.mkpath(str(target.parent))
            self.copy_file(str(jar), str(target))


setup(cmdclass={"build_py": BuildWithJar})
