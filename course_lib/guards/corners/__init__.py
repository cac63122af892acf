"""What makes checks shorter, and changes nothing about what they say. A reader of lesson 04 may
skip this folder.

`dictionaries.py`: guards on what lies in dictionaries are asked again only after one of these has
changed.
"""

from course_lib.guards.corners import dictionaries
