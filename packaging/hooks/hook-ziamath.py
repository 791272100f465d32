"""The font for maths, which ziamath reads through the package that it lies in."""

from PyInstaller.utils.hooks import collect_data_files

hiddenimports = ["ziamath.fonts"]
datas = collect_data_files("ziamath", includes=["fonts/*.ttf"])
