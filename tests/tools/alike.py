"""Are two results of one program alike: types, dtypes, shapes, and numbers?"""

import numpy as np
import torch


def same(ours, eagers, signs=True):
    """The same type, dtype, shape, and numbers (`signs`: and signs of zeros)."""
    assert type(ours) is type(eagers)
    if isinstance(eagers, (tuple, list)):
        assert len(ours) == len(eagers)
        for one, other in zip(ours, eagers, strict=True):
            same(one, other, signs)
    elif isinstance(eagers, torch.Tensor):
        torch.testing.assert_close(ours, eagers, equal_nan=True)
    elif isinstance(eagers, (np.ndarray, np.generic)):
        assert ours.dtype == eagers.dtype
        assert ours.shape == eagers.shape
        rough = {"float16": 4e-3, "float32": 2e-6, "complex64": 2e-6}
        np.testing.assert_allclose(ours, eagers, rtol=rough.get(str(ours.dtype), 1e-12))
        if ours.dtype.kind == "f" and signs:
            zeros = eagers == 0
            np.testing.assert_array_equal(np.signbit(ours)[zeros], np.signbit(eagers)[zeros])
    else:
        assert ours == eagers
