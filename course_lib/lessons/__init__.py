"""What lessons bring with them that is too long for a notebook.

`museum.py` (lesson 12): ten compilers, each wrong in one stage. `serving.py` (lesson 14): a
simulated server. `without_gpu.py` (lessons 9 and 11): what a GPU would do. `trials.py` (lesson 15):
the programs on which a learner's stage is tried.

Some of these files stand for a user's code: capture follows them, as it follows `course_lib/bench`.
"""
