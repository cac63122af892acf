"""`python -m course_lib ...` is `course ...`."""

import sys

from .grading.cli import main

sys.exit(main())
