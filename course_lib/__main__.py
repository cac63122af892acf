"""`python -m course_lib ...` is `course ...`."""

import sys

from .cli import main

sys.exit(main())
