#!/usr/bin/env bash
# Have Apple check what is signed, and attach the answer to it: notarise.sh FILE
#
# FILE is Kvasir.app or the disk image. The account is one of:
#   NOTARY_PROFILE                        a profile that `xcrun notarytool store-credentials` left in the keychain
#   NOTARY_KEY NOTARY_KEY_ID NOTARY_ISSUER  an App Store Connect key: path of its .p8 file, its id, its issuer
set -euo pipefail

file=${1:?"usage: notarise.sh APP_OR_DMG"}

if [[ -n ${NOTARY_PROFILE:-} ]]; then
  account=(--keychain-profile "$NOTARY_PROFILE")
else
  account=(
    --key "${NOTARY_KEY:?set NOTARY_PROFILE, or NOTARY_KEY, NOTARY_KEY_ID and NOTARY_ISSUER}"
    --key-id "${NOTARY_KEY_ID:?}"
    --issuer "${NOTARY_ISSUER:?}"
  )
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
sent=$file
if [[ -d $file ]]; then
  # A bundle is sent as an archive; ditto keeps its links and attributes.
  sent=$folder/kvasir.zip
  ditto -c -k --keepParent "$file" "$sent"
fi

# --wait answers with exit status 0 also for what was refused: the answer itself says so.
xcrun notarytool submit "$sent" "${account[@]}" --wait --timeout 1h --output-format plist >"$folder/answer.plist"
status=$(plutil -extract status raw -o - "$folder/answer.plist")
if [[ $status != Accepted ]]; then
  echo "Apple's answer is $status. What it objects to:" >&2
  xcrun notarytool log "$(plutil -extract id raw -o - "$folder/answer.plist")" "${account[@]}" >&2
  exit 1
fi
xcrun stapler staple "$file"
xcrun stapler validate "$file"
