"""The command line `tileloom`: the one folder that may know every package.

A module a command. Packages are imported where they are needed, so that --help is quick.
"""

from dataflow.cli.app import app, main

__all__ = ["app", "main"]
