"""The Lab's pictures and plots, painted from what `engine.protocol.lab` describes."""

from app.lab.pictures.plot import PlotView
from app.lab.pictures.view import Miniature, PictureView

__all__ = ["Miniature", "PictureView", "PlotView"]  # not shown
