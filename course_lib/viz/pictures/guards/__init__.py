"""Guards: what compiled code assumes, which calls it served, and the sizes that may change."""
