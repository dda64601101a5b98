"""The version of the package; nothing is imported here, so that a build can read it."""

__version__ = "0.1.0"
