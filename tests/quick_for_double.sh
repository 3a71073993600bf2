#!/bin/sh
# The C++ compiler of `make test-all`: users' optimization, but for kernels of float64, which would take minutes.
case " $* " in *" -DREAL=double "*) exec "$(dirname "$0")/quick_compiler.sh" "$@" ;; esac
exec c++ "$@"
