"""Kvasir's engine."""

import os

# huggingface_hub reads this when it is imported, in whatever process and by whatever part: without it, it asks the hub
# for a list that nobody wants, and tells it which versions of Python and PyTorch are here.
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
