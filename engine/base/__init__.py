"""Helpers for every room: errors, devices, files read with care, folders, sizes, the installation, fetching/."""
