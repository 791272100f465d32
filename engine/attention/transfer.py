"""Small things of the host on their way to the device."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def on_device(device: torch.device, values: list[int] | np.ndarray) -> Tensor:
    """A tensor of the values; on CUDA out of pinned memory, because a copy from any other waits for the device."""
    tensor = torch.from_numpy(values) if isinstance(values, np.ndarray) else torch.tensor(values)
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)
