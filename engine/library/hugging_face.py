"""What is used of ``huggingface_hub``, imported without the variables that end its import where they are wrong: what is
wrong with the hub's address is said when the hub is asked, and whoever asks nothing need not hear of it.
"""

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
