#!/usr/bin/env bash
# The disk image that people download, with the program and a link to drag it to: dmg.sh APP OUT.dmg [IDENTITY]
set -euo pipefail

app=${1:?"usage: dmg.sh APP OUT.dmg [IDENTITY]"}
out=${2:?"usage: dmg.sh APP OUT.dmg [IDENTITY]"}
identity=${3:--}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
ditto "$app" "$folder/$(basename "$app")"
ln -s /Applications "$folder/Applications"
rm -f "$out"
# ULMO is LZMA: the smallest, readable since macOS 10.15.
hdiutil create -volname Kvasir -fs HFS+ -format ULMO -srcfolder "$folder" "$out"
if [[ $identity != - ]]; then
  codesign --force --timestamp --sign "$identity" "$out"
fi
hdiutil verify "$out"
