"""The compiler explorer: every stage side by side, linked line by line."""
