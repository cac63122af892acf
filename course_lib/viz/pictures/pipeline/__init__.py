"""The compiler as a whole: its map, whose parts it has, and the search for a wrong stage."""
