"""What the Debian package depends on, computed from real libraries."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kit import depends, elf
from kit.sonames import OPTIONAL, PACKAGES

from app import system_libraries
from tests.packaging import linux_standin


@pytest.fixture(scope="module")
def needs(tmp_path_factory: pytest.TempPathFactory) -> depends.Needs:
    return depends.of(linux_standin.window(tmp_path_factory.mktemp("window")))


def test_window_s_libraries_are_asked_for(needs: depends.Needs) -> None:
    assert {"libegl1", "libgl1", "libx11-6", "libxcb-cursor0", "libxkbcommon-x11-0"} <= set(needs.depends)
    assert "libglib2.0-0t64 | libglib2.0-0" in needs.depends
    assert {"fontconfig-config", "xkb-data"} <= set(needs.depends)


def test_newest_symbols_set_the_version(needs: depends.Needs) -> None:
    assert [text for text in needs.depends if text.startswith("libc6")] == ["libc6 (>= 2.34)"]
    assert [text for text in needs.depends if text.startswith("libstdc++6")] == ["libstdc++6 (>= 11)"]


def test_what_plugins_need_is_only_recommended(needs: depends.Needs) -> None:
    assert needs.recommends == ["libgtk-3-0t64 | libgtk-3-0"]
    assert not [text for text in needs.depends if "gtk" in text]


def test_bundled_libraries_are_not_asked_for(needs: depends.Needs) -> None:
    assert not [text for text in needs.depends if "qt" in text.lower() or "icu" in text]


def test_library_that_nobody_brings_stops_the_build(tmp_path: Path) -> None:
    program = linux_standin.window(tmp_path)
    (program / "_internal" / "PySide6" / "Qt" / "lib" / "libQt6DBus.so.6").unlink()
    with pytest.raises(depends.UnknownLibrary, match=r"libQt6DBus\.so\.6 \(for _internal/"):
        depends.of(program)


def test_python_does_not_find_the_program_s_libraries(tmp_path: Path) -> None:
    program = linux_standin.program(tmp_path)
    linux_standin._copy(linux_standin.TRUE, program / "_internal" / "libc.so.6")
    assert "libc6 (>= 2.34)" in depends.of(program).depends  # python/ and tools/ still use the system's


def test_reads_what_the_dynamic_section_says() -> None:
    [path] = linux_standin.site("shiboken6").glob("shiboken6/libshiboken6*")
    library = elf.read(path)
    assert library.soname == path.name
    assert "libc.so.6" in library.needed
    assert ("libc.so.6", "GLIBC_2.14") in library.versions
    with pytest.raises(ValueError, match="ELF"):
        elf.read(Path(__file__))


def test_the_window_s_start_names_the_same_packages() -> None:
    for library in (*system_libraries.CORE, *system_libraries.XCB, *system_libraries.WAYLAND):
        assert PACKAGES[library.soname].split(" | ")[-1] == library.package


def test_every_package_has_a_name_that_debian_allows() -> None:
    for relation in [*PACKAGES.values(), *OPTIONAL.values()]:
        for name in relation.split(" | "):
            assert re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", name)
    renamed = [relation for relation in PACKAGES.values() if "t64" in relation]
    assert renamed
    assert all(relation.split(" | ")[0] == relation.split(" | ")[1] + "t64" for relation in renamed)
