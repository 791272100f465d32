#!/usr/bin/env bash
# Take the program out of the disk image, as a person would, try it there, and remove it: try.sh KVASIR.dmg
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
image=${1:?"usage: try.sh KVASIR.dmg"}
python=${PYTHON:-python3}

folder=$(mktemp -d)
mounted=$folder/image
cleanup() {
  hdiutil detach "$mounted" -quiet || true
  rm -rf "$folder"
}
trap cleanup EXIT
mkdir "$mounted"
hdiutil attach "$image" -nobrowse -readonly -mountpoint "$mounted"

# A path with a space and a letter beyond ASCII: people have such folders.
place="$folder/Überall Programme"
mkdir "$place"
ditto "$mounted/Kvasir.app" "$place/Kvasir.app"
codesign --verify --deep --strict "$place/Kvasir.app"
"$python" "$here/../smoke/portable.py" "$place/Kvasir.app/Contents/MacOS" --version "$("$python" "$here/../release.py" version)"
# Nothing was written into the bundle: its signature still holds.
codesign --verify --deep --strict "$place/Kvasir.app"
rm -r "$place/Kvasir.app"
echo "Left of it: $(find "$place" | wc -l | tr -d ' ') entry, the folder that it was put into."
