# What a terminal of `make lab` reads (Makefile): your own settings first, then the course's environment in front of the path.
[ -f /etc/bash.bashrc ] && . /etc/bash.bashrc
[ -f ~/.bashrc ] && . ~/.bashrc
PATH="$COURSE_BIN:$PATH"
