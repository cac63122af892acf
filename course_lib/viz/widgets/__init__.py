"""Pictures that answer: choose, move a tile, guess before running, step through a capture."""
