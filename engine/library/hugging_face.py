"""Imports of the parts of ``huggingface_hub`` that Kvasir uses, without the variables that make its import fail where
they are wrong: an error in the hub's address is reported when the hub is asked, and to nobody who asks nothing."""

from __future__ import annotations

import os

_set = {
    name: os.environ.pop(name)
    for name in ("HF_ENDPOINT", "HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT")
    if name in os.environ
}
try:
    from huggingface_hub import constants as constants
    from huggingface_hub import errors as errors
    from huggingface_hub.utils import get_token as get_token
    from huggingface_hub.utils import hf_raise_for_status as hf_raise_for_status
    from huggingface_hub.utils import logging as logging
finally:
    os.environ.update(_set)
