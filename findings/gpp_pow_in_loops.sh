#!/bin/sh
# One would guess that `std::pow(x, 0.5f)` of one x is the same number inside of a loop and outside.
# g++ 12.2 with `-O3 -fno-math-errno` makes a square root of it where it vectorizes the loop, and only there. The two differ where IEEE says
# so: of -infinity the power is infinity and the root nan; of -0.0 the power is 0.0 and the root -0.0. So elements 0 to 7 of a row of nine
# have other results than the ninth. No flag of `-ffast-math` allows it but the one about errno.
#
# Seen 2026-11-29 with g++ 12.2.0. It needs `g++`. For our users: `course_lib` writes this power without `pow`
# (`half_power` in course_lib/codegen/prelude.h; tests/07_lowering_to_loops/test_10_special_numbers.py).
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cat > "$place/powers.cpp" <<'CPP'
#include <cmath>
#include <cstdio>

__attribute__((noinline)) void powers(const float* x, float* y, int n) {
  for (int i = 0; i < n; i++) y[i] = std::pow(x[i], 0.5f);
}

int main() {
  float x[9], y[9];
  for (float& each : x) each = -INFINITY;
  powers(x, y, 9);
  printf("first of nine %g, ninth %g\n", std::fabs(y[0]), y[8]);
  bool seen = std::isnan(y[0]) && std::isinf(y[8]);
  puts(seen ? "as described" : "the behaviour has changed");
  return !seen;
}
CPP
g++ --version | head -n 1
g++ -O3 -fno-math-errno "$place/powers.cpp" -o "$place/powers"
"$place/powers"
