"""The one piece of native code: 4-bit products on a CPU. Optional; without it torch's own operators serve."""
