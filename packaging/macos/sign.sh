#!/usr/bin/env bash
# Sign Kvasir.app from the inside out: sign.sh APP [IDENTITY]
#
# IDENTITY is a "Developer ID Application: …" of the keychain. Without one ("-") the signature is ad hoc: the program runs
# on the Mac that built it, which on Apple's processors it would not without any, but nowhere else without a warning.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
app=${1:?"usage: sign.sh APP [IDENTITY]"}
identity=${2:--}
python=${PYTHON:-python3}

options=(--force --sign "$identity")
if [[ $identity != - ]]; then
  # The hardened runtime and a timestamp of Apple's are what notarisation asks for. Under an ad-hoc signature the former
  # would refuse every library: they have no team.
  options+=(--options runtime --timestamp)
fi

order=$(mktemp)
trap 'rm -f "$order"' EXIT
"$python" "$here/build.py" signing-order "$app" >"$order"
while IFS=$'\t' read -r kind path; do
  if [[ $kind == program ]]; then
    codesign "${options[@]}" --entitlements "$here/entitlements.plist" "$path"
  else
    codesign "${options[@]}" "$path"
  fi
done <"$order"

codesign --verify --deep --strict --verbose=2 "$app"
