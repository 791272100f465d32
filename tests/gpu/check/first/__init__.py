"""The first minutes of a GPU: what decides which of the prepared designs are turned on, measured by its worth.

:mod:`plan` says what there is and which parts fit into the minutes, :mod:`run` runs them, and :mod:`decisions` says
what follows from the figures. A call goes on where the one before, into the same folder, was stopped.
"""
