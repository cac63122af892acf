"""Special cases of marking, each in a table of rules: how learning platforms name files
(`systems.py`), what systems leave in a folder (`leftovers.py`)."""
