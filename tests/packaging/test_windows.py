"""The Windows installer: what is put into it, what its uninstaller takes away, and that makensis takes the script."""

import importlib.util
import lzma
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest
from kit import ico, icons, layout, nsis, publisher
from PySide6.QtGui import QImage

ROOT = Path(__file__).resolve().parents[2]
SVG = ROOT / "assets" / "icons" / "kvasir.svg"


def _script(path):
    spec = importlib.util.spec_from_file_location("windows_build", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


builder = _script(ROOT / "packaging" / "windows" / "build.py")


def put(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


@pytest.fixture
def program(tmp_path):
    return put(
        tmp_path / "the program",
        *nsis.PROGRAMS,
        "_internal/base_library.zip",
        "_internal/engine/doors/cli/main.py",
        "_internal/a folder/with spaces.txt",
        "_internal/price in $USD.txt",
        "_internal/Überschrift.txt",
        "python/python.exe",
        "tools/uv.exe",
        "share/applications/kvasir.desktop",
    )


def files(*names):
    return [PurePosixPath(name) for name in names]


# --- the lists -------------------------------------------------------------------------------------------------------


def test_every_file_of_the_payload_is_put_down_and_taken_away_and_nothing_else_is(program):
    put(program, "_internal/added later/new.dll")
    found = nsis.read(program)
    put_down, folder = set(), ""
    for line in nsis.install_list(found).splitlines():
        if match := re.fullmatch(r'SetOutPath "(.*)"', line):
            folder = match[1]
        else:
            name, source = re.fullmatch(r'File "/oname=(.*)" "(.*)"', line).groups()
            assert (program / source).is_file()
            put_down.add(f"{folder}\\{name}")
    removed = nsis.remove_list(found)
    deleted = set(re.findall(r'^Delete "(.*)"$', removed, re.MULTILINE))
    assert "$INSTDIR\\_internal\\added later\\new.dll" in deleted
    assert {path for path in deleted if "__pycache__" not in path} == put_down
    assert len(put_down) == len(found) == 11
    assert not [path for path in put_down if "share" in path]  # Linux' menus


def test_folders_are_removed_only_when_empty_and_the_deepest_first():
    lines = nsis.remove_list(files("_internal/a/b/c.txt", "_internal/a/d.txt", "kvasir.exe")).splitlines()
    folders = [line for line in lines if line.startswith("RMDir")]
    assert folders == [f'RMDir "$INSTDIR\\{name}"' for name in ("_internal\\a\\b", "_internal\\a", "_internal")]
    assert lines[-3:] == folders


def test_the_caches_of_python_modules_go_with_them():
    removed = nsis.remove_list(files("python/Lib/os.py", "python/Lib/os.txt"))
    assert 'Delete "$INSTDIR\\python\\Lib\\__pycache__\\os.cpython-3??.pyc"' in removed
    assert 'RMDir "$INSTDIR\\python\\Lib\\__pycache__"' in removed
    assert "__pycache__" not in nsis.remove_list(files("python/Lib/os.txt"))


def test_nothing_in_the_script_removes_a_folder_with_all_that_is_in_it():
    for script in (ROOT / "packaging" / "windows").glob("*.ns?"):
        code = "\n".join(line.split(";")[0] for line in script.read_text(encoding="utf-8").splitlines())
        assert "/r" not in re.split(r"\s+", code), script.name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("_internal/" + "x" * nsis.LONGEST, "too long"),
        ("_internal/" + "x" * (nsis.LONGEST - 20) + ".py", "too long"),
        ("_internal/a:b", "refuses"),
        ("_internal/aux.txt", "refuses"),
        ("_internal/COM1", "refuses"),
        ("_internal/folder./x", "refuses"),
        ("_internal/${X}", "refuses"),
        ("Uninstall.exe", "uninstaller"),
    ],
)
def test_names_that_windows_would_not_take_stop_the_build(name, why):
    assert any(why in sentence for sentence in nsis.problems(files(name)))


def test_names_that_windows_takes_are_no_problem():
    assert nsis.problems(files("_internal/" + "x" * (nsis.LONGEST - 10), "a/.hidden", "auxiliary.txt", "a b/c$d")) == []


def test_two_names_that_differ_in_case_stop_the_build():
    assert "one file" in nsis.problems(files("a/Foo.py", "a/foo.py"))[0]


def test_a_folder_without_the_programs_stops_the_build(program):
    (program / "kvasir-engine.exe").unlink()
    with pytest.raises(nsis.PayloadError, match=r"lacks kvasir-engine\.exe"):
        nsis.read(program)


def test_a_link_stops_the_build(program):
    (program / "link").symlink_to("kvasir.exe")
    with pytest.raises(nsis.PayloadError, match="is a link"):
        nsis.read(program)


def test_versions_keep_their_order_as_four_numbers():
    order = [
        "0.1.0",
        "0.2.0.dev3",
        "0.2.0a1",
        "0.2.0b2",
        "0.2.0rc1",
        "0.2.0rc2",
        "0.2.0",
        "0.2.0.post1",
        "0.2.1",
        "1.0",
    ]
    quads = [tuple(map(int, nsis.quad(version).split("."))) for version in order]
    assert quads == sorted(quads)
    assert len(set(quads)) == len(quads)
    assert all(number < 65536 for quad in quads for number in quad)
    with pytest.raises(ValueError, match="1!2"):
        nsis.quad("1!2.0.0")


# --- the icon --------------------------------------------------------------------------------------------------------


def test_the_icon_has_all_sizes_and_they_show_the_picture(tmp_path):
    data = ico.ico(SVG)
    _, kind, count = struct.unpack_from("<HHH", data)
    assert (kind, count) == (1, len(ico.ICO_SIZES))
    end = 6 + 16 * count
    for index, size in enumerate(ico.ICO_SIZES):
        width, height, _, _, _, bits, length, start = struct.unpack_from("<BBBBHHII", data, 6 + 16 * index)
        assert (width, height, bits, start) == (size % 256, size % 256, 32, end)
        end += length
        body = data[start : start + length]
        if size < 256:
            drawn = icons.picture(SVG, size)
            middle = drawn.pixel(size // 2, size // 2)
            row = size - 1 - size // 2  # from the bottom
            assert struct.unpack_from("<I", body, 40 + 4 * (row * size + size // 2))[0] == middle
        else:
            assert QImage.fromData(body).width() == 256
    assert end == len(data)


def test_the_icon_of_macos_has_all_kinds():
    data = ico.icns(SVG)
    assert data[:4] == b"icns"
    assert struct.unpack_from(">I", data, 4)[0] == len(data)
    place, found = 8, {}
    while place < len(data):
        kind, length = data[place : place + 4], struct.unpack_from(">I", data, place + 4)[0]
        found[kind] = QImage.fromData(data[place + 8 : place + length]).width()
        place += length
    assert found == ico.ICNS_KINDS


@pytest.mark.qt_log_ignore("Cannot read file", extend=True)
def test_no_svg_is_no_icon(tmp_path):
    (tmp_path / "x.svg").write_text("nothing")
    with pytest.raises(ValueError, match="no picture"):
        icons.picture(tmp_path / "x.svg", 16)


# --- the installer ---------------------------------------------------------------------------------------------------


def unpacked(program):
    """What a solid LZMA installer of NSIS holds: its header, with all strings, and its files."""
    start = program.find(b"\xef\xbe\xad\xdeNullsoftInst") + 24
    properties, dictionary = struct.unpack_from("<BI", program, start)
    packing = {"id": lzma.FILTER_LZMA1, "dict_size": dictionary, "lc": properties % 9}
    packing |= {"lp": properties // 9 % 5, "pb": properties // 45}
    return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[packing]).decompress(program[start + 5 :])


def wide(text):
    return text.encode("utf-16-le")


needs_makensis = pytest.mark.skipif(shutil.which("makensis") is None, reason="makensis is not installed (package nsis)")


@needs_makensis
def test_makensis_makes_an_installer_without_a_warning(program, tmp_path):
    put(program, "_internal/added.dll")
    installer = builder.build(program, tmp_path / "out folder", "0.3.0rc1")
    assert installer.name == "kvasir-0.3.0rc1-windows-x86_64-setup.exe"
    data = installer.read_bytes()
    assert data[:2] == b"MZ"
    assert data[struct.unpack_from("<I", data, 60)[0] :][:4] == b"PE\0\0"
    assert wide("0.3.0rc1") in data  # the version information
    assert b'level="asInvoker"' in data or b"level='asInvoker'" in data  # no administrator is asked for
    inside = unpacked(data)
    assert b"_internal/added.dll" in inside  # the stand-in's content
    assert wide("Software\\Microsoft\\Windows\\CurrentVersion\\Uninstall\\Kvasir") in inside
    assert wide("0.3.0.301") in inside
    assert wide(publisher.NAME) in inside
    uninstaller = unpacked(inside[inside.find(b"\xef\xbe\xad\xdeNullsoftInst") - 4 :])
    for part in (
        "\\_internal\\added.dll",
        "with spaces.txt",
        "price in $USD.txt",
        "Überschrift.txt",
        "\\tools\\uv.exe",
    ):
        assert wide(part) in inside or wide(part.rpartition("\\")[2]) in inside
        assert wide(part) in uninstaller, part
    for word in ("settings", "chats", "models", "making", "heads", "gpu", "caches", "logs"):
        assert wide(f" --purge-{word}") in uninstaller
    assert wide("\\_internal\\never there") not in uninstaller


@needs_makensis
def test_what_signs_is_run_for_the_uninstaller_and_the_installer(program, tmp_path):
    seen = tmp_path / "seen"
    builder.build(program, tmp_path, "1.0.0", sign=f"head -c 2 %1 >> {seen}")
    assert seen.read_bytes() == b"MZMZ"


@needs_makensis
def test_a_signature_that_fails_fails_the_build(program, tmp_path):
    with pytest.raises(subprocess.CalledProcessError):
        builder.build(program, tmp_path, "1.0.0", sign="false %1")


@needs_makensis
@pytest.mark.skipif(shutil.which("7z") is None, reason="7z is not installed (package p7zip-full)")
def test_the_installer_lists_every_file_where_it_belongs(program, tmp_path):
    installer = builder.build(program, tmp_path, "1.0.0")
    done = subprocess.run(["7z", "l", "-slt", installer], capture_output=True, text=True, check=True)
    listed = set(re.findall(r"^Path = (.*)$", done.stdout, re.MULTILINE))
    assert {str(file) for file in nsis.read(program)} <= {name.replace("\\", "/") for name in listed}


@needs_makensis
def test_the_command_takes_the_version_of_the_sources(program, tmp_path):
    command = [sys.executable, ROOT / "packaging" / "windows" / "build.py", "--program", program, "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == str(tmp_path / f"kvasir-{layout.version()}-windows-x86_64-setup.exe")
    (program / "kvasir.exe").unlink()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "lacks kvasir.exe" in done.stderr
