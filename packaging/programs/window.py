"""The packaged window."""

import sys

from app.__main__ import main

sys.exit(main())
