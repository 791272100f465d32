; All of Kvasir's entries in the registry, below HKEY_CURRENT_USER.

!define KEY_UNINSTALL "Software\Microsoft\Windows\CurrentVersion\Uninstall\Kvasir"
!define KEY_CLASSES "Software\Classes"
!define PROGID "Kvasir.gguf"
!define VALUE_QUAD "KvasirQuad" ; the version as four numbers, for a later installer to compare

!macro WriteUninstallEntry
  WriteRegStr HKCU "${KEY_UNINSTALL}" "DisplayName" "${NAME}"
  WriteRegStr HKCU "${KEY_UNINSTALL}" "DisplayVersion" "${VERSION}"
  WriteRegStr HKCU "${KEY_UNINSTALL}" "${VALUE_QUAD}" "${QUAD}"
  WriteRegStr HKCU "${KEY_UNINSTALL}" "Publisher" "${PUBLISHER}"
  !if "${HOME}" != ""
    WriteRegStr HKCU "${KEY_UNINSTALL}" "URLInfoAbout" "${HOME}"
  !endif
  WriteRegStr HKCU "${KEY_UNINSTALL}" "DisplayIcon" "$INSTDIR\${WINDOW},0"
  WriteRegStr HKCU "${KEY_UNINSTALL}" "InstallLocation" "$INSTDIR"
  WriteRegStr HKCU "${KEY_UNINSTALL}" "UninstallString" '"$INSTDIR\${UNINSTALLER}"'
  WriteRegStr HKCU "${KEY_UNINSTALL}" "QuietUninstallString" '"$INSTDIR\${UNINSTALLER}" /S'
  WriteRegDWORD HKCU "${KEY_UNINSTALL}" "EstimatedSize" ${KILOBYTES}
  WriteRegDWORD HKCU "${KEY_UNINSTALL}" "NoModify" 1
  WriteRegDWORD HKCU "${KEY_UNINSTALL}" "NoRepair" 1
!macroend

; Kvasir appears under "Open with"; which program opens .gguf files by default stays what it was.
!macro WriteAssociation
  WriteRegStr HKCU "${KEY_CLASSES}\${PROGID}" "" "GGUF language model"
  WriteRegStr HKCU "${KEY_CLASSES}\${PROGID}\DefaultIcon" "" "$INSTDIR\${WINDOW},0"
  WriteRegStr HKCU "${KEY_CLASSES}\${PROGID}\shell\open\command" "" '"$INSTDIR\${WINDOW}" "%1"'
  WriteRegStr HKCU "${KEY_CLASSES}\.gguf\OpenWithProgids" "${PROGID}" ""
  WriteRegStr HKCU "${KEY_CLASSES}\Applications\${WINDOW}" "FriendlyAppName" "${NAME}"
  WriteRegStr HKCU "${KEY_CLASSES}\Applications\${WINDOW}\SupportedTypes" ".gguf" ""
  WriteRegStr HKCU "${KEY_CLASSES}\Applications\${WINDOW}\shell\open\command" "" '"$INSTDIR\${WINDOW}" "%1"'
  !insertmacro TellShell
!macroend

!macro DeleteAssociation
  DeleteRegKey HKCU "${KEY_CLASSES}\${PROGID}"
  DeleteRegKey HKCU "${KEY_CLASSES}\Applications\${WINDOW}"
  DeleteRegValue HKCU "${KEY_CLASSES}\.gguf\OpenWithProgids" "${PROGID}"
  ; Only where nothing of another program's is in them.
  DeleteRegKey /ifnosubkeys /ifnovalues HKCU "${KEY_CLASSES}\.gguf\OpenWithProgids"
  DeleteRegKey /ifnosubkeys /ifnovalues HKCU "${KEY_CLASSES}\.gguf"
  !insertmacro TellShell
!macroend

!define SHCNE_ASSOCCHANGED 0x08000000
!macro TellShell
  System::Call 'shell32::SHChangeNotify(i ${SHCNE_ASSOCCHANGED}, i 0, p 0, p 0)'
!macroend
