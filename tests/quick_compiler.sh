#!/bin/sh
# The C++ compiler of the default tests: with -Og kernels compile in half the time, and have the same bits. A quarter of
# that is standard headers, which conftest.py compiles once.
case " $* " in *" -O0 "*) exec c++ "$@" ;; esac
headers=$(dirname "$0")/../.pytest_cache/headers.h
case " $* " in *".cpp "*) [ -e "$headers.gch" ] && set -- "$@" -include "$headers" ;; esac
exec c++ "$@" -Og
