"""The packaging scripts run from their own folder, which is no package: it would hide PyPI's `packaging`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "packaging"))
