"""What of torch is packaged: its modules and libraries, without headers, tests, and tools that nothing here reaches."""

from pathlib import Path

from PyInstaller.utils.hooks import PY_DYLIB_PATTERNS, collect_dynamic_libs, collect_submodules, get_package_paths

UNUSED = (
    "torch.testing._internal.opinfo",
    "torch.testing._internal.generated",
    "torch.testing._internal.distributed",
    "torch.testing._internal.data",
    "torch.testing._internal.optests",
    "torch.fx.passes.tests",
    "torch.utils.benchmark",
    "torch.utils.tensorboard",
    "torch.utils.bottleneck",
    "torch.utils.model_dump",
)
LIBRARIES = ("libtorchbind_test", "libjitbackend_test", "libbackend_with_compiler", "libaoti_custom_ops")
"""Made for torch's own tests."""

# Torch reads its own sources: comments in its settings, and the functions that it compiles.
module_collection_mode = "py"
warn_on_missing_hiddenimports = False
hiddenimports = collect_submodules("torch", filter=lambda name: not name.startswith(UNUSED), on_error="ignore")
excludedimports = list(UNUSED)
binaries = [
    (source, target)
    for source, target in collect_dynamic_libs("torch", search_patterns=[*PY_DYLIB_PATTERNS, "*.so.*"])
    if not any(name in source for name in LIBRARIES)
]
# Links beside the programs would let another torch, that of a GPU pack, find these libraries first.
bindepend_symlink_suppression = ["**/torch/lib/*.so*"]

# Torch looks for it when it is imported.
manager = Path(get_package_paths("torch")[1]) / "bin" / "torch_shm_manager"
if manager.is_file():
    binaries.append((str(manager), "torch/bin"))
