"""How busy the engine is, told with an answer to load balancers that ask for it: Open Request Cost Aggregation.

Source: https://github.com/cncf/xds/blob/main/xds/data/orca/v3/orca_load_report.proto. The figures have vLLM's names.
"""

from __future__ import annotations

import json

from starlette.requests import Request

from engine.services.hub import EngineHub

FORM_HEADER, LOAD_HEADER = "endpoint-load-metrics-format", "endpoint-load-metrics"


async def load_header(request: Request, hub: EngineHub) -> dict[str, str]:
    """The header in the form that ``request`` asks for, TEXT or JSON; none where it asks for neither."""
    form = request.headers.get(FORM_HEADER, "").upper()
    if form not in ("TEXT", "JSON"):
        return {}
    frame = await hub.frame()
    figures = {"kv_cache_usage_perc": frame.pages.read_share, "num_requests_waiting": float(frame.queue.waiting)}
    named = ", ".join(f"named_metrics.{name}={value}" for name, value in figures.items())
    return {LOAD_HEADER: f"{form} {named if form == 'TEXT' else json.dumps({'named_metrics': figures})}"}
