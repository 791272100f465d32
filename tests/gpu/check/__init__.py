"""`make gpu-check`: the tests that need a GPU and the figures of one, in parts, held against what was predicted.

Each part runs in a process of its own, within a limit, and writes a JSON file as it goes, so that a part that fails or
takes too long loses nothing of itself and nothing of the others. :mod:`tests.gpu.check.report` makes one page of them.
"""
