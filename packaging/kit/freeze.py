"""From tracked sources to the folder with the three programs, by PyInstaller in an environment of its own."""

from __future__ import annotations

import compileall
import hashlib
import os
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

from kit.layout import BUILD, PACKAGING, PROGRAM, ROOT, STAGE, VENV, internal, venv_program

STAGED = ("app", "engine", "assets", "docs/using.md", "docs/optimisations.md", "pyproject.toml", "README.md", "LICENSE")
MAKING = ("assets/demo/knowledge/", "assets/demo/phrases.json", "assets/languages/README.md")
"""How the bundled model and the translations were made is for the repository, as are the scripts beside them."""
MADE_FROM = (".py", ".ts")
"""Ends of the names of files in assets that others there were made by or from."""
REQUIREMENTS = PACKAGING / "requirements.txt"
CONSTRAINTS = ROOT / "constraints.txt"


def make_environment() -> None:
    """A virtual environment for this one purpose, made anew when what it is made of has changed."""
    texts = [REQUIREMENTS.read_bytes(), CONSTRAINTS.read_bytes(), sys.version.encode()]
    stamp, wanted = VENV / "made-of", hashlib.sha256(b"".join(texts)).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    shutil.rmtree(VENV, ignore_errors=True)
    run(sys.executable, "-m", "venv", str(VENV))
    index = os.environ.get("KVASIR_TORCH_INDEX")
    extra = ["--extra-index-url", index] if index else []
    pip = (str(venv_program("python")), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, *extra, "--constraint", str(CONSTRAINTS), "--requirement", str(REQUIREMENTS))
    stamp.write_text(wanted)


def stage_sources() -> None:
    """Copy what git tracks of the program, and compile the native code there."""
    shutil.rmtree(STAGE, ignore_errors=True)
    listed = subprocess.run(["git", "ls-files", "-z", *STAGED], cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        made = name.startswith(MAKING) or (name.startswith("assets/") and name.endswith(MADE_FROM))
        if made or Path(name).name.startswith("."):
            continue
        target = STAGE / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    run(str(venv_program("python")), "-m", "engine.compute.native.build", "--all", cwd=STAGE)
    metadata = "from setuptools.build_meta import prepare_metadata_for_build_wheel as make; make('.')"
    run(str(venv_program("python")), "-c", metadata, cwd=STAGE, quiet=True)
    for folder in STAGE.glob("*.egg-info"):
        shutil.rmtree(folder)


def freeze(epoch: int, icon: Path | None = None) -> None:
    """Run PyInstaller: ``PROGRAM`` holds the programs afterwards."""
    work = BUILD / "work"
    for folder in (work, PROGRAM):
        shutil.rmtree(folder, ignore_errors=True)
    environment = {
        **os.environ,
        "KVASIR_STAGE": str(STAGE),
        "KVASIR_PACKAGING": str(PACKAGING),
        "KVASIR_ICON": str(icon or ""),
        "PYTHONPATH": str(STAGE),
        "PYTHONHASHSEED": "1",
        "SOURCE_DATE_EPOCH": str(epoch),
        "PYINSTALLER_CONFIG_DIR": str(BUILD / "cache"),
    }
    program = str(venv_program("pyinstaller"))
    run(program, "--noconfirm", "--log-level", "WARN", "--workpath", str(work), "--distpath", str(BUILD),
        str(PACKAGING / "kvasir.spec"), environment=environment)  # fmt: skip


def forget_prefix() -> None:
    """The interpreter and its own modules look for libraries in the folder they were built for: have them look here."""
    if sys.platform.startswith("linux"):
        from kit.python_tree import set_rpath, strip

        interpreter = sorted(internal().glob("libpython3*.so*"))
        strip(*interpreter)
        set_rpath("$ORIGIN", *interpreter)
        set_rpath("$ORIGIN/../..", *sorted(internal().glob("python3.*/lib-dynload/*.so")))


def compile_sources() -> None:
    """Bytecode beside sources, the engine's and torch's: nobody can write it there once the program is installed.

    In one process and in order: what else was compiled before decides how constants are written down.
    """
    for folder in sorted({path.parent for path in internal().glob("*/__init__.py")}):
        done = compileall.compile_dir(
            folder,
            quiet=2,
            stripdir=str(internal()),
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        if not done and folder.name == "engine":
            raise SystemExit("The engine's sources could not be compiled.")


def run(*command: str, cwd: Path = ROOT, environment: dict[str, str] | None = None, quiet: bool = False) -> None:
    """Run a command; its failure ends the build."""
    sys.stdout.flush()
    done = subprocess.run(command, cwd=cwd, env=environment, stdout=subprocess.DEVNULL if quiet else None, check=False)
    if done.returncode:
        raise SystemExit(f"{Path(command[0]).name} failed with exit status {done.returncode}.")
