"""Number types of machines as NumPy knows them.

The narrow ones come from ml_dtypes, whose import alone takes half a second: it waits until one of
them is asked for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_OWN = {"fp32": np.float32, "fp16": np.float16}
_NARROW = {"bf16": "bfloat16", "fp8_e4m3": "float8_e4m3fn"}


def numpy_type(data_type: str) -> Any:
    """Return the NumPy type of fp32, fp16, bf16 or fp8_e4m3; KeyError on others.

    >>> numpy_type("fp16")
    <class 'numpy.float16'>
    """
    if data_type in _OWN:
        return _OWN[data_type]
    import ml_dtypes

    return getattr(ml_dtypes, _NARROW[data_type])


def finfo(data_type: str) -> Any:
    """Return what `numpy.finfo` says of a type: eps, max, smallest_subnormal.

    >>> float(finfo("bf16").eps)
    0.0078125
    """
    if data_type in _OWN:
        return np.finfo(_OWN[data_type])
    import ml_dtypes

    return ml_dtypes.finfo(numpy_type(data_type))
