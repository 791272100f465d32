"""What tests of several folders use, and the plugins of every run."""
