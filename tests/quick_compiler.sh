#!/bin/sh
# The C++ compiler of the default tests: with -O1 kernels compile in half the time, and have the same bits.
case " $* " in *" -O0 "*) exec c++ "$@" ;; esac
exec c++ "$@" -O1
