"""A real series for the FFT convolution: 1024 trading days of one share.

The data is `goog.npz`, which Matplotlib ships with its examples: the daily prices and volumes of
Google's share from August 2004 on. Channel 0 is the logarithm of the closing price, channel 1 that
of the traded volume, each with its mean taken away and scaled to unit variance. The filters are
exponential averages: of 20 days' half-life for the price and of 5 for the volume.
"""

from pathlib import Path

import numpy as np
from matplotlib import cbook

DAYS = 1024
HALF_LIVES = (20.0, 5.0)


def series() -> tuple[np.ndarray, np.ndarray]:
    """Return the signal u[batch=1, channels=2, n=1024] and the filters k[channels=2, n=1024]."""
    record = cbook.get_sample_data("goog.npz")["price_data"][-DAYS:]
    logs = np.log(np.stack([record["close"], record["volume"].astype(float)]))
    signal = (logs - logs.mean(axis=1, keepdims=True)) / logs.std(axis=1, keepdims=True)
    decay = 0.5 ** (1 / np.array(HALF_LIVES))[:, None]
    filters = (1 - decay) * decay ** np.arange(DAYS)
    return signal[None], filters


def write_series(path: Path) -> str:
    """Write both as an .npz file for `tileloom simulate fft_conv`; return what they are."""
    signal, filters = series()
    np.savez(path, u=signal, k=filters)
    return f"Google's daily closing price and volume, {DAYS} trading days (Matplotlib's goog.npz)"
