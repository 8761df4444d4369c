"""Packages of npm, for tests with programs of others that Debian does not have."""
import shutil

import pytest

from .places import ENVIRONMENT
from .program import run
from .waiting import ProgramError


def install(folder, package):
    """Skips the test if npm is missing, or does not bring it."""
    if not shutil.which("npm", path=ENVIRONMENT["PATH"]):
        pytest.skip("npm is not installed")
    try:
        run("npm", "install", "--silent", "--no-fund", "--no-audit", "--ignore-scripts", package,
            cwd=folder, HOME=str(folder))
    except ProgramError as error:
        pytest.skip(f"npm does not bring {package}: {error}")
    return folder / "node_modules"
