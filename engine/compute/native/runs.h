/* The runs of a step (engine/cache/stores/states.py): [n, FIELDS] int64. */
#pragma once

enum { FIRST, STOP, SOURCE, TARGET, BEGINS, FIELDS };
