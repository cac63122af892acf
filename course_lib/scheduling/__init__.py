"""Scheduling: which loops run together (`fusion`), in which order (`schedule`), and where buffers live (`memory`)."""

from course_lib.scheduling.fusion import RULES, Fuse, No, can_fuse
from course_lib.scheduling.kernel import FusedKernel, Kernel, Loop, Step
from course_lib.scheduling.memory import MemoryPlan, plan
from course_lib.scheduling.schedule import Decision, Schedule, schedule
from course_lib.scheduling.split import split_reductions
from course_lib.scheduling.streams import Streamed, stream_products
