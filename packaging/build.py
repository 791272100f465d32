"""Make what people download, from a checkout: ``make package``. See README.md."""

from __future__ import annotations

import sys
import time

from kit import checks, freeze, layout, python_tree


def main() -> int:
    epoch = layout.epoch()
    steps = [
        ("environment", freeze.make_environment),
        ("sources", freeze.stage_sources),
        ("programs", lambda: freeze.freeze(epoch)),
        ("libraries", freeze.forget_prefix),
        ("bytecode", freeze.compile_sources),
        ("interpreter", python_tree.make_python),
        ("uv", python_tree.add_uv),
        ("checks", check),
    ]
    for name, step in steps:
        began = time.monotonic()
        print(f"{name} …", flush=True)
        step()
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    return 0


def check() -> None:
    """Raises SystemExit with what is wrong."""
    scrubbed = [str(file.relative_to(layout.PROGRAM)) for file in checks.scrub()]
    print(f"  the build machine's folders were overwritten in {len(scrubbed)} files: {', '.join(scrubbed[:8])} …")
    wrong = [f"{file} holds {path.decode()}" for file, path in checks.traces()]
    if sys.platform.startswith("linux"):
        wrong += [f"{file} wants glibc {version}" for file, version in checks.newer_glibc()]
    if wrong:
        raise SystemExit("\n".join(wrong))
    parts = checks.sizes()
    total = sum(size for _, size in parts)
    for name, size in parts[:20]:
        print(f"  {size / 1e6:8.1f} MB  {name}")
    print(f"  {total / 1e6:8.1f} MB in all (target {checks.INSTALLED_LIMIT / 1e6:.0f})")


if __name__ == "__main__":
    sys.exit(main())
