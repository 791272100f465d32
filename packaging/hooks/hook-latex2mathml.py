"""The table of symbols, and the metadata that latex2mathml reads its version from."""

from PyInstaller.utils.hooks import collect_data_files, copy_metadata

datas = [*collect_data_files("latex2mathml", includes=["*.txt"]), *copy_metadata("latex2mathml")]
