"""Special cases of capture: each module adds rules to the tables of the spine, which knows none of them.

A reader of lesson 02 and 03 may skip this folder. In PyTorch: the long tail of `torch/_dynamo/variables/`.
"""

from course_lib.capture.corners import numpy, python, random, tensors, torch_warnings, warn
