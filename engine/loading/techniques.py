"""Every technique with a record, registered with the catalogue: a new one is added here, or to those of the cache.

Whoever needs the whole catalogue imports this module. It loads no torch, which the records import where they are made.
"""

from __future__ import annotations

import engine.cache.techniques  # noqa: F401 - registers those of the cache
from engine import catalogue
from engine.decoding.scheduling.policies import classes, first_come, mlfq, shortest
from engine.decoding.speculation.assistant import technique as assistant
from engine.decoding.speculation.draft_model import technique as draft_model
from engine.decoding.speculation.eagle import technique as eagle
from engine.decoding.speculation.medusa import technique as medusa
from engine.decoding.speculation.mtp import technique as mtp
from engine.decoding.speculation.ngram import technique as ngram
from engine.decoding.speculation.self_drafting import technique as self_drafting

catalogue.register(
    ngram.TECHNIQUE,
    draft_model.TECHNIQUE,
    self_drafting.EARLY_EXIT,
    self_drafting.LAYER_SKIPPING,
    medusa.TECHNIQUE,
    eagle.TECHNIQUE,
    mtp.TECHNIQUE,
    assistant.TECHNIQUE,
    first_come.FIRST_COME,
    classes.SERVICE_CLASSES,
    mlfq.MLFQ,
    shortest.SHORTEST,
    first_come.STATIC,
)
