#!/bin/sh
# The C++ compiler of `make test-all`: users' optimization for float32, gaps that are numbers, and a linear and an affine
# kind of alignment.h; all would take minutes.
case " $* " in
  *" -DREAL=double "* | *" -DBY_POSITION "* | *" -DBY_AXIS "* | *" -DKIND="[1235]" "*)
    exec "$(dirname "$0")/quick_compiler.sh" "$@" ;;
esac
exec c++ "$@"
