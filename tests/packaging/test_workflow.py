"""The workflow of releases: well formed, its actions pinned, its rights few, its scripts there; and release.py."""

import hashlib
import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / ".github" / "workflows" / "package.yml"
WORKFLOW = yaml.safe_load(FILE.read_text(encoding="utf-8"))
JOBS = WORKFLOW["jobs"]
STEPS = [(name, step) for name, job in JOBS.items() for step in job["steps"]]
WRITTEN_ELSEWHERE = {"packaging/build.py", "packaging/requirements.txt"}
"""What the other systems' builds share; no test of these tells."""

_spec = importlib.util.spec_from_file_location("release", ROOT / "packaging" / "release.py")
release = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(release)


def test_it_runs_on_tags_and_on_demand_only():
    triggers = WORKFLOW[True]  # YAML 1.1 takes the word "on" for true
    assert set(triggers) == {"push", "workflow_dispatch"}
    assert triggers["push"] == {"tags": ["v*"]}


def test_every_system_has_a_job_and_the_release_waits_for_all():
    assert set(JOBS) == {"linux", "windows", "macos", "release"}
    assert JOBS["release"]["needs"] == ["linux", "windows", "macos"]
    for name, job in JOBS.items():
        assert job["timeout-minutes"] <= 120, name
        assert not job["runs-on"].endswith("latest"), name


def test_nothing_may_write_but_the_release():
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert {name: job["permissions"] for name, job in JOBS.items() if "permissions" in job} == {
        "release": {"contents": "write"}
    }
    assert JOBS["release"]["if"] == "startsWith(github.ref, 'refs/tags/')"
    for _, step in STEPS:
        if "checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


def test_actions_are_pinned_to_a_commit_with_their_version_beside_it():
    uses = re.findall(r"^\s*(?:- )?uses: (.*)$", FILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(uses) == sum("uses" in step for _, step in STEPS) > 5
    for line in uses:
        assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_secrets_reach_commands_only_through_the_environment():
    for name, step in STEPS:
        assert "secrets." not in step.get("run", ""), (name, step["name"])
        assert "${{" not in step.get("run", ""), (name, step["name"])  # nor anything that could be a command
        assert len(set(step) & {"run", "uses"}) == 1


def test_what_is_signed_is_signed_only_where_there_are_keys():
    for name in ("windows", "macos"):
        assert re.fullmatch(r"\$\{\{ (secrets\.\w+ != ''( && )?)+ \}\}", JOBS[name]["env"]["SIGNS"])
        keyed = [step for step in JOBS[name]["steps"] if "CERTIFICATE" in step.get("env", {})]
        assert keyed
        assert all(step["if"] == "env.SIGNS == 'true'" for step in keyed)
        assert any(step.get("if") == "always()" and "No key stays" in step["name"] for step in JOBS[name]["steps"])


def test_the_scripts_that_it_names_are_there():
    named = set()
    for _, step in STEPS:
        named |= {found.replace("\\", "/") for found in re.findall(r"packaging[/\\][\w./\\-]+\w", step.get("run", ""))}
    assert {"packaging/macos/sign.sh", "packaging/windows/try.ps1", "packaging/release.py"} <= named
    assert [name for name in named - WRITTEN_ELSEWHERE if not (ROOT / name).is_file()] == []


def test_all_that_is_built_is_uploaded_with_its_checksums():
    for name in ("linux", "windows", "macos"):
        (upload,) = [step for step in JOBS[name]["steps"] if "upload-artifact" in step.get("uses", "")]
        assert f"dist/SHA256SUMS-{name}" in upload["with"]["path"].split()
        assert upload["with"]["if-no-files-found"] == "error"
        assert any("try" in step["name"] for step in JOBS[name]["steps"] if "name" in step)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("name", ["linux", "macos", "release"])
def test_shellcheck_has_nothing_to_say_about_its_commands(name, tmp_path):
    for number, step in enumerate(JOBS[name]["steps"]):
        if "run" in step:
            script = tmp_path / f"{number}.sh"
            script.write_text("#!/bin/bash\nset -eo pipefail\n" + step["run"])
            done = subprocess.run(["shellcheck", script], capture_output=True, text=True, check=False)
            assert not done.stdout, step["name"]


def test_checksums_are_those_of_sha256sum(tmp_path):
    (tmp_path / "b c.deb").write_bytes(b"two")
    (tmp_path / "a.dmg").write_bytes(b"one")
    release.sums(tmp_path / "SHA256SUMS", [tmp_path / "b c.deb", tmp_path / "a.dmg"])
    assert (
        (tmp_path / "SHA256SUMS").read_bytes().splitlines()[0].startswith(hashlib.sha256(b"one").hexdigest().encode())
    )
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path, check=True, capture_output=True)
    with pytest.raises(SystemExit, match="nothing to sum"):
        release.sums(tmp_path / "SHA256SUMS", [])


def test_a_tag_that_is_not_the_version_is_refused():
    release.check_tag(f"v{release.version()}")
    with pytest.raises(SystemExit, match=r"v9\.9\.9 is not v"):
        release.check_tag("v9.9.9")
