"""The trace report: everything that was compiled in a run, as one HTML file, and as a folder of
files.

    compile_reader.py, compiles.py, compile_tree.py        the events of a run, put together to
                                                           compiles
    page.py                                                the page: its table of contents, and its
                                                           `sections`
    tables.py, calls_section.py, tree_section.py           what stands in a section
    findings.py, compile_time.py, lines.py
    script.py, whole_run.py                                `course report script.py`: a run is
                                                           recorded
    debug_folder.py                                        each stage as a file (`trace.enabled`)

(`bench/report.py` is another thing: measurements as text.)
In PyTorch: `tlparse`, and `torch/_inductor/debug.py` for the folder.
"""
