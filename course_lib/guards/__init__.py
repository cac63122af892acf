"""May this compiled code be used for this call?"""

from course_lib.guards.check import Check, Failure
