"""All that touches tensors: native code, attention, layers, sampling, model families, vision towers, the runner."""
