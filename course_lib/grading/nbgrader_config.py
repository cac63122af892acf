"""How nbgrader sees this repository: run its commands at the top with
`JUPYTER_CONFIG_PATH=course_lib/grading`.

`course exercises` reads the same file, so what it makes and what nbgrader makes are the same cells.
"""

c = get_config()  # type: ignore[name-defined]  # noqa: F821 (traitlets puts it there)

c.CourseDirectory.course_id = "course"
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "exercises"

c.ClearSolutions.code_stub = {
    "python": "raise NotImplementedError('Exercise: write this part, then run the cell again.')"
}
c.ClearSolutions.text_stub = "*Your answer here.*"

c.Execute.timeout = 120
c.Execute.interrupt_on_timeout = True

# Names with a comma are quoted.
c.ExportApp.plugin_class = "course_lib.grading.nbgrader_export.QuotedCsv"
