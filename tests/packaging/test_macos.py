"""The bundle for macOS from a stand-in program folder, and the scripts that sign it with stand-ins for macOS' tools."""

import importlib.util
import os
import plistlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kit import bundle, publisher

from app.language import LANGUAGES

ROOT = Path(__file__).resolve().parents[2]
MACOS = ROOT / "packaging" / "macos"
MACHO = bytes.fromhex("cffaedfe") + bytes(28)
FAT = bytes.fromhex("cafebabe00000002") + bytes(24)


def _script(path):
    spec = importlib.util.spec_from_file_location("macos_build", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


builder = _script(MACOS / "build.py")


def put(folder, names, content):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


@pytest.fixture
def program(tmp_path):
    folder = tmp_path / "a program"
    internal = folder / "_internal"
    put(folder, bundle.PROGRAMS, MACHO)
    put(
        internal,
        [
            "engine/compute/native/kvasir_native_portable.dylib",
            "torch/lib/libtorch_cpu.dylib",
            "numpy/.dylibs/libgfortran.dylib",
        ],
        MACHO,
    )
    put(
        internal,
        ["PySide6/Qt/lib/QtCore.framework/Versions/A/QtCore", "PySide6/QtCore.abi3.so", "libssl.3.dylib"],
        MACHO,
    )
    put(internal, ["Python.framework/Versions/3.11/Python"], FAT)
    put(
        internal,
        ["engine/base/installation.py", "engine/compute/native/gemm.c", "assets/icons/kvasir.svg", "torch/version.py"],
        b"text",
    )
    put(internal, ["kvasir-1.0.dist-info/METADATA", "base_library.zip", "numpy/.dylibs/notes.txt"], b"text")
    put(internal, ["PySide6/Qt/lib/QtCore.framework/Versions/A/Resources/Info.plist"], b"text")
    (internal / "PySide6/Qt/lib/QtCore.framework/Versions/Current").symlink_to("A")
    (internal / "PySide6/Qt/lib/QtCore.framework/QtCore").symlink_to("Versions/Current/QtCore")
    (internal / "Python").symlink_to("Python.framework/Versions/3.11/Python")
    put(folder, ["python/bin/python3.11", "tools/uv"], MACHO)
    put(folder, ["share/applications/kvasir.desktop"], b"text")
    return folder


@pytest.fixture
def app(program, tmp_path):
    return builder.build(program, tmp_path, "0.3.0rc1")


def test_everything_of_the_program_is_found_where_the_program_looks_for_it(program, app):
    internal, contents = program / "_internal", app / "Contents"
    names = [path.relative_to(internal) for path in internal.rglob("*") if path.is_file()]
    assert len(names) == 17
    for tree in ("Frameworks", "Resources"):
        for name in names:
            assert (contents / tree / name).read_bytes() == (internal / name).read_bytes(), f"{tree}/{name}"
    for name in bundle.PROGRAMS:
        assert os.access(contents / "MacOS" / name, os.X_OK)
    assert sorted(path.name for path in (contents / "MacOS").iterdir()) == sorted(bundle.PROGRAMS)


def test_code_and_data_are_each_in_their_own_place(app):
    for path in app.rglob("*"):
        place = path.relative_to(app / "Contents").parts
        if path.is_symlink() or path.is_dir() or any(part.endswith(".framework") for part in place):
            continue
        assert (place[0] in ("Frameworks", "MacOS")) == bundle.is_macho(path), path
    assert not bundle.problems(app)


def test_the_engine_finds_its_native_code_and_assets_from_its_own_file(app):
    """As engine/compute/native/build.py and engine/base/installation.py do: a module's file, resolved."""
    module = (app / "Contents" / "Frameworks" / "engine" / "base" / "installation.py").resolve()
    assert (module.parents[1] / "compute" / "native" / "kvasir_native_portable.dylib").read_bytes() == MACHO
    assert (module.parents[2] / "assets" / "icons" / "kvasir.svg").read_bytes() == b"text"


def test_no_folder_among_the_code_has_a_dot_in_its_name(app):
    assert (app / "Contents" / "Frameworks" / "numpy" / ".dylibs").is_symlink()
    assert (app / "Contents" / "Frameworks" / "numpy" / "__dot__dylibs" / "libgfortran.dylib").is_file()
    assert (app / "Contents" / "Frameworks" / "kvasir-1.0.dist-info").is_symlink()  # data only: it lies in Resources


def test_links_hold_wherever_the_bundle_is_put(app, tmp_path):
    moved = tmp_path / "elsewhere" / "Kvasir copy.app"
    moved.parent.mkdir()
    app.rename(moved)
    links = [path for path in moved.rglob("*") if path.is_symlink()]
    assert links
    assert all(path.exists() and not os.path.isabs(os.readlink(path)) for path in links)


def test_what_no_mac_has_a_use_for_is_left_out(app):
    assert not [path for path in app.rglob("*") if path.name in ("uv", "python3.11", "kvasir.desktop")]


def test_the_property_list(app):
    plist = plistlib.loads((app / "Contents" / "Info.plist").read_bytes())
    assert plist["CFBundleShortVersionString"] == plist["CFBundleVersion"] == "0.3.0"
    assert (app / "Contents" / "MacOS" / plist["CFBundleExecutable"]).is_file()
    assert (app / "Contents" / "Resources" / plist["CFBundleIconFile"]).read_bytes()[:4] == b"icns"
    (kind,) = plist["CFBundleDocumentTypes"]
    assert kind["CFBundleTypeExtensions"] == ["gguf"]
    assert kind["LSHandlerRank"] == "Alternate"  # no default of anyone's is taken
    (declared,) = plist["UTImportedTypeDeclarations"]
    assert kind["LSItemContentTypes"] == [declared["UTTypeIdentifier"]]
    assert plist["LSMinimumSystemVersion"] == "13.0"
    assert plist["CFBundleIdentifier"] == publisher.COMPONENT
    assert plist["CFBundlePackageType"] == "APPL"
    assert plist["CFBundleLocalizations"] == list(LANGUAGES)
    assert (app / "Contents" / "PkgInfo").read_bytes() == b"APPL????"


def test_the_entitlements_are_as_few_as_they_say():
    assert plistlib.loads((MACOS / "entitlements.plist").read_bytes()) == {"com.apple.security.cs.allow-jit": True}


def test_all_code_is_signed_once_and_from_the_inside_out(app):
    order = bundle.signing_order(app)
    paths = [path for path, _ in order]
    assert len(set(paths)) == len(paths)
    code = [path for path in app.rglob("*") if path.is_file() and not path.is_symlink() and bundle.is_macho(path)]
    for path in code:
        covered = [
            signed
            for signed in paths
            if signed == path
            or (signed == app and path.name == "kvasir-window")
            or (".framework" in str(signed) and signed == path.parent)
        ]
        assert len(covered) == 1, path
    for place, path in enumerate(paths):
        assert not any(later in path.parents and place > paths.index(later) for later in paths), path
    assert paths[-1] == app
    assert [path.name for path, program in order if program] == ["kvasir", "kvasir-engine", "Kvasir.app"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (MACHO, True),
        (FAT, True),
        (bytes.fromhex("cafebabe00000041") + bytes(8), False),  # a class file of Java's
        (b"\x7fELF" + bytes(8), False),
        (b"", False),
    ],
)
def test_what_counts_as_code(tmp_path, content, expected):
    (tmp_path / "x").write_bytes(content)
    assert bundle.is_macho(tmp_path / "x") is expected


def test_what_codesign_would_refuse_is_found(app):
    (app / "Contents" / "Frameworks" / "notes.txt").write_text("data")
    (app / "Contents" / "Frameworks" / "a.b").mkdir()
    (app / "Contents" / "Resources" / "out").symlink_to("/etc/hosts")
    (app / "Contents" / "Resources" / "gone").symlink_to("nothing")
    assert [sentence.partition(" is ")[0] for sentence in bundle.problems(app)] == [
        "Contents/Frameworks/a.b",
        "Contents/Frameworks/notes.txt",
        "Contents/Resources/gone",
        "Contents/Resources/out",
    ]


def test_a_folder_of_another_system_is_refused(program, tmp_path):
    (program / "kvasir-window").unlink()
    with pytest.raises(bundle.BundleError, match="lacks kvasir-window"):
        builder.build(program, tmp_path, "1.0.0")


def test_what_has_no_place_is_refused(program, tmp_path):
    put(program, ["surprise.txt"], b"text")
    with pytest.raises(bundle.BundleError, match=r"surprise\.txt has no place"):
        builder.build(program, tmp_path, "1.0.0")


def test_the_command_makes_the_bundle_and_lists_what_is_signed(program, tmp_path):
    command = [sys.executable, MACOS / "build.py"]
    made = subprocess.run(
        [*command, "--program", program, "--out", tmp_path], capture_output=True, text=True, check=True
    )
    app = tmp_path / "Kvasir.app"
    assert made.stdout.splitlines()[-1] == str(app)
    done = subprocess.run([*command, "signing-order", app], capture_output=True, text=True, check=True)
    lines = [f"{'program' if program else 'code'}\t{path}" for path, program in bundle.signing_order(app)]
    assert done.stdout.splitlines() == lines


# --- the scripts, with stand-ins for macOS' own programs -------------------------------------------------------------


@pytest.fixture
def tools(tmp_path):
    """A folder of programs that note how they were called, and a function that runs a script with them."""
    folder, calls = tmp_path / "tools", tmp_path / "calls"
    folder.mkdir()

    def stand_in(name, *lines):
        file = folder / name
        note = f'printf "%s\\t" "$(basename "$0")" "$@" >>"{calls}"; printf "\\n" >>"{calls}"'
        file.write_text("\n".join(["#!/bin/bash", note, *lines, ""]))
        file.chmod(0o755)

    def run(script, *arguments, **environment):
        path = f"{folder}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", MACOS / script, *map(str, arguments)],
            env={**os.environ, "PATH": path, "PYTHON": sys.executable, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        noted = calls.read_text().splitlines() if calls.exists() else []
        return done, [line.rstrip("\t").split("\t") for line in noted]

    run.stand_in = stand_in
    return run


def test_signing_calls_codesign_for_every_part_in_order(app, tools):
    tools.stand_in("codesign")
    done, calls = tools("sign.sh", app, "Developer ID Application: Someone (TEAM)")
    assert done.returncode == 0, done.stderr
    *signed, verified = calls
    assert [call[-1] for call in signed] == [str(path) for path, _ in bundle.signing_order(app)]
    for call, (_, program) in zip(signed, bundle.signing_order(app), strict=True):
        assert "runtime" in call
        assert "--timestamp" in call
        assert ("--entitlements" in call) is program
    assert verified[1] == "--verify"


def test_without_an_identity_the_signature_is_ad_hoc_and_the_runtime_not_hardened(app, tools):
    tools.stand_in("codesign")
    _, calls = tools("sign.sh", app)
    assert all(call[call.index("--sign") + 1] == "-" and "runtime" not in call for call in calls[:-1])


def test_a_part_that_cannot_be_signed_ends_the_signing(app, tools):
    tools.stand_in("codesign", "exit 1")
    done, calls = tools("sign.sh", app)
    assert done.returncode
    assert len(calls) == 1


@pytest.mark.parametrize("status", ["Accepted", "Invalid"])
def test_only_what_apple_accepted_is_stapled(app, tools, status):
    tools.stand_in("ditto", 'touch "${@: -1}"')
    tools.stand_in("plutil", f"[[ $2 == status ]] && echo {status} || echo some-id")
    tools.stand_in("xcrun")
    done, calls = tools("notarise.sh", app, NOTARY_PROFILE="release")
    assert (done.returncode == 0) is (status == "Accepted")
    verbs = [call[1:3] for call in calls if call[0] == "xcrun"]
    assert verbs[0] == ["notarytool", "submit"]
    if status == "Accepted":
        assert verbs[1:] == [["stapler", "staple"], ["stapler", "validate"]]
    else:
        assert verbs[1:] == [["notarytool", "log"]]
        assert "Invalid" in done.stderr


def test_notarising_needs_an_account(app, tools):
    tools.stand_in("xcrun")
    done, calls = tools("notarise.sh", app, NOTARY_PROFILE="")
    assert "NOTARY_PROFILE" in done.stderr
    assert not calls


def test_the_disk_image_holds_the_program_and_a_link_to_the_applications(app, tools, tmp_path):
    tools.stand_in("ditto", 'cp -R "$1" "$2"')
    tools.stand_in("hdiutil", '[[ $1 == create ]] && ls "${@: -2:1}" >"${@: -1}"', "true")
    tools.stand_in("codesign")
    out = tmp_path / "kvasir.dmg"
    done, calls = tools("dmg.sh", app, out, "Developer ID Application: Someone (TEAM)")
    assert done.returncode == 0, done.stderr
    assert out.read_text().split() == ["Applications", "Kvasir.app"]
    assert [call[0] for call in calls] == ["ditto", "hdiutil", "codesign", "hdiutil"]


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_has_nothing_to_say():
    scripts = sorted(MACOS.glob("*.sh"))
    assert len(scripts) == 4
    done = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True, check=False)
    assert not done.stdout
    for script in scripts:
        assert "set -euo pipefail" in script.read_text()
        assert os.access(script, os.X_OK)
