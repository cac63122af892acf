"""What the events told, kept: by kind (`recording.py`), or as lines of text (`logs.py`)."""

from course_lib.viz.recording.recording import WHOLE, Count, Recording, plain

__all__ = ["WHOLE", "Count", "Recording", "plain"]
