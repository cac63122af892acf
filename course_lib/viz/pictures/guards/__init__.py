"""Guards: what compiled code assumes, which calls it served, and the sizes that may change.

guard_tables.py, guard_trees.py      the guards of a capture
call_timeline.py                     which calls each compiled code served
shape_map.py, symbolic_sizes.py, buckets.py
                                     sizes: which code serves them, what was assumed of them
"""
