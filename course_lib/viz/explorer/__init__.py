"""The compiler explorer: every stage side by side, linked line by line.

rows.py                              what is listed: panes, rows, and the moments of a compile
capture_rows.py, autograd_rows.py, kernel_rows.py
                                     the rows of each stage
provenance.py                        which rows came from which
explorer.py                          the page
"""
