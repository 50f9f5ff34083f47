"""The version of the package, for modules that must not import the package itself."""

__version__ = "0.1.0.dev0"
