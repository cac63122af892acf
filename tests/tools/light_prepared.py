"""What the server of forks imports when it starts: a process in which notebooks can run at once (`light_executor`)."""

from light_executor import prepare

prepare()
