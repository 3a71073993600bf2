#!/bin/sh
# The C++ compiler of the tests: with -O1, kernels compile in half the time and have the same bits. The first argument
# says what gets that: "everything", or "double", the kernels of float64.
which=$1
shift
case "$which $* " in
*" -O0 "*) exec c++ "$@" ;; # the test's own choice
"everything "* | *" -DREAL=double "*) exec c++ "$@" -O1 ;;
esac
exec c++ "$@"
