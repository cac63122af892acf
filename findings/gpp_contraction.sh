#!/bin/sh
# One would guess that `-std=c++17` forbids the compiler to fuse `p = a * b; p + c` into one instruction, as `-std=c11` does for C.
# g++ 12.2 fuses it with `-std=c++17` as well as with `-std=gnu++17` once the processor has such an instruction (`-mfma`): the strict
# standard turns contraction off in C only. The product is then not rounded, and the last digits differ from those of `-std=c11`.
#
# Seen 2026-11-28 with g++ 12.2.0 on x86-64. It needs g++ (the test reads the assembly and runs nothing). For our users: the same file
# gives other digits on another processor. `course_lib` passes `-ffp-contract=off`, so that its kernels give eager's digits.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"

echo 'double fused(double a, double b, double c) { double p = a * b; return p + c; }' >one.c
cp one.c one.cc
g++ --version | head -n 1

fused() { "$@" -O2 -mfma -S -o - | grep -c vfmadd || true; }
c_strict=$(fused gcc -std=c11 one.c)
c_gnu=$(fused gcc -std=gnu11 one.c)
cc_strict=$(fused g++ -std=c++17 one.cc)
cc_off=$(fused g++ -std=c++17 -ffp-contract=off one.cc)
echo "fused instructions: gcc -std=c11 $c_strict, gcc -std=gnu11 $c_gnu, g++ -std=c++17 $cc_strict, g++ -std=c++17 -ffp-contract=off $cc_off"

if [ "$c_strict $c_gnu $cc_strict $cc_off" = "0 1 1 0" ]; then
    echo "as described"
else
    echo "the behaviour has changed"
    exit 1
fi
