"""The trace report: everything that was compiled in a run, as one HTML file, and as a folder of files."""
