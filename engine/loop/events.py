"""Output of the engine to its listener, from the engine thread: messages of the protocol, and the facts of each step.

Requests go by the engine's own names of them; the server puts the client's in their place.
"""

from __future__ import annotations

from engine.decoding.telemetry.records import StepRecord
from engine.protocol import Adapters, Delta, Error, Finished, Loaded, Loading, Options, Prefill, Unloaded

RequestEvent = Delta | Prefill | Finished | Error
Event = RequestEvent | Loading | Loaded | Unloaded | Options | Adapters | StepRecord
