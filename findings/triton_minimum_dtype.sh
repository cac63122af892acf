#!/bin/sh
# One would guess that `tl.minimum` of two bfloat16 blocks is bfloat16, as `+` and `*` of them are, in every version.
# triton 3.7.1 makes float32 of both first, and gives float32; 3.9.0 gives bfloat16. So in `tl.minimum(x, y) * z` the product is rounded to
# bfloat16 with the newer compiler only: the same kernel gives other numbers, and no word is said.
#
# Seen 2026-11-29 with triton 3.7.1 and 3.9.0; the kernels are compiled for a GPU, and none is needed. For our users: the simulated GPU
# follows the version that is installed; generated kernels convert to float32 before they compare.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cat > "$place/kernel.py" <<'PYTHON'
import re
import sys
import warnings

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget

warnings.simplefilter("ignore")


@triton.jit
def smaller(x, y, out, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    least = tl.minimum(tl.load(x + at), tl.load(y + at))
    tl.store(out + at, least * least)


types = {"x": "*bf16", "y": "*bf16", "out": "*fp32", "SIZE": "constexpr"}
source = triton.compiler.ASTSource(fn=smaller, signature=types, constexprs={(3,): 16})
text = triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ttir"]
product = re.search(r"arith\.mulf .* : tensor<16x(\w+)>", text)[1]
print("triton", triton.__version__, "multiplies", product)
sys.exit(product != sys.argv[1])
PYTHON

changed=0
for expected in 3.7.1=f32 3.9.0=bf16; do
  version=${expected%=*}
  python3 -m venv "$place/venv-$version"
  "$place/venv-$version/bin/pip" install -q --disable-pip-version-check "triton==$version"
  (cd "$place" && "venv-$version/bin/python" -W ignore kernel.py "${expected#*=}") || changed=1
done
if [ "$changed" = 0 ]; then echo "as described"; else echo "the behaviour has changed"; fi
exit "$changed"
