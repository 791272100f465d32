"""Output of the engine to its listener, from the engine thread: messages of the protocol, and the facts of each step.

Requests go by the engine's own names of them; the server puts the client's in their place.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.decoding.telemetry.records import StepRecord
from engine.protocol import Adapters, Delta, Error, Finished, Loaded, Loading, Options, Prefill, Unloaded


class Embedded(NamedTuple):
    """The embedding of a prompt, just before :class:`Finished`: ``vector`` float32 of any length; of a model that
    ranks one number, the logit that the document answers the query."""

    id: str
    vector: np.ndarray


RequestEvent = Delta | Prefill | Finished | Error | Embedded
Event = RequestEvent | Loading | Loaded | Unloaded | Options | Adapters | StepRecord
