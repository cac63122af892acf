"""The compiler as a whole: its map, whose parts it has, and the search for a wrong stage.

`pipeline_map.py` is the map, `owners.py` marks on it whose the parts are. `bug_search.py` draws a
search through the stages, `walk.py` one function on its way.
"""
