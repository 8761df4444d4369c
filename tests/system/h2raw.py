"""HTTP/2 by hand, which the integration tests have."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness.h2 import *  # noqa: E402, F401, F403
