#!/bin/sh
# The C++ compiler of `make test-all`: users' optimization for float32 and gaps that are numbers; all would take minutes.
case " $* " in *" -DREAL=double "* | *" -DBY_POSITION "* | *" -DBY_AXIS "*) exec "$(dirname "$0")/quick_compiler.sh" "$@" ;; esac
exec c++ "$@"
