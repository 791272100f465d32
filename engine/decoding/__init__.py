"""One answer on its way: requests, options, scheduling, speculation, what is measured of a step."""
