; The installer of Kvasir for Windows: for one user, without administrator's rights.
;
; build.py defines VERSION, QUAD (Windows' four numbers), KILOBYTES, PROGRAM (the program folder), WORK (a folder with
; install.nsh, remove.nsh, kvasir.ico, licence.txt), TARGET, PUBLISHER and its HOME ("" for none), and SIGN where a command
; signs what is made.
;
; Exit codes of a silent run (/S): 0 done, 2 stopped, 3 Kvasir runs, 4 what was to be purged could not be, 5 a newer Kvasir is
; installed, 6 the folder holds something else, 7 an unknown word in /PURGE, 8 this Windows is too old. The uninstaller
; goes on from a copy of itself and tells its code only where it runs in place: with _?=FOLDER as its last argument.

Unicode true
SetCompressor /SOLID lzma
SetCompressorDictSize 64
RequestExecutionLevel user
ManifestSupportedOS Win10
ManifestDPIAware true
ManifestLongPathAware true
AllowSkipFiles off
CRCCheck force

!include "MUI2.nsh"
!include "LogicLib.nsh"
!include "FileFunc.nsh"
!include "WordFunc.nsh"
!include "WinVer.nsh"
!include "x64.nsh"
!include "nsDialogs.nsh"

!define NAME "Kvasir"
!define WINDOW "kvasir-window.exe"
!define COMMAND "kvasir.exe"
!define UNINSTALLER "uninstall.exe"

!define ERROR_RUNNING 3
!define ERROR_PURGE 4
!define ERROR_NEWER 5
!define ERROR_FOLDER 6
!define ERROR_USAGE 7
!define ERROR_SYSTEM 8

Name "${NAME}"
OutFile "${TARGET}"
!define DEFAULT_FOLDER "$LOCALAPPDATA\Programs\${NAME}"
InstallDir "${DEFAULT_FOLDER}"
BrandingText "${NAME} ${VERSION}"
ShowInstDetails nevershow
ShowUninstDetails show

VIProductVersion "${QUAD}"
VIFileVersion "${QUAD}"
VIAddVersionKey "ProductName" "${NAME}"
VIAddVersionKey "ProductVersion" "${VERSION}"
VIAddVersionKey "FileVersion" "${VERSION}"
VIAddVersionKey "FileDescription" "Installer of ${NAME}"
VIAddVersionKey "CompanyName" "${PUBLISHER}"
VIAddVersionKey "LegalCopyright" "Apache License 2.0"

!ifdef SIGN
  !uninstfinalize '${SIGN}' = 0
  !finalize '${SIGN}' = 0
!endif

!include "running.nsh"
!include "registry.nsh"
!include "choices.nsh"

; --- pages ------------------------------------------------------------------------------------------------------------

!define MUI_ICON "${WORK}/kvasir.ico"
!define MUI_UNICON "${WORK}/kvasir.ico"
!define MUI_ABORTWARNING
!define MUI_COMPONENTSPAGE_NODESC
!define MUI_FINISHPAGE_NOAUTOCLOSE
!define MUI_UNFINISHPAGE_NOAUTOCLOSE
!define MUI_FINISHPAGE_RUN "$INSTDIR\${WINDOW}"
!define MUI_FINISHPAGE_RUN_TEXT "Start Kvasir"

!insertmacro MUI_PAGE_WELCOME
!insertmacro MUI_PAGE_LICENSE "${WORK}/licence.txt"
!insertmacro MUI_PAGE_COMPONENTS
!define MUI_PAGE_CUSTOMFUNCTION_LEAVE CheckFolder
!insertmacro MUI_PAGE_DIRECTORY
!insertmacro MUI_PAGE_INSTFILES
!insertmacro MUI_PAGE_FINISH

UninstPage custom un.ShowChoices un.TakeChoices
!insertmacro MUI_UNPAGE_CONFIRM
!insertmacro MUI_UNPAGE_INSTFILES
!insertmacro MUI_UNPAGE_FINISH

!insertmacro MUI_LANGUAGE "English"

; --- installing -------------------------------------------------------------------------------------------------------

Var Former ; the folder of the Kvasir that is installed, or ""

Function .onInit
  SetShellVarContext current
  SetRegView 64
  ${IfNot} ${AtLeastWin10}
  ${OrIfNot} ${RunningX64}
    MessageBox MB_OK|MB_ICONSTOP "Kvasir needs a 64-bit Windows 10 or newer." /SD IDOK
    SetErrorLevel ${ERROR_SYSTEM}
    Quit
  ${EndIf}
  ReadRegStr $Former HKCU "${KEY_UNINSTALL}" "InstallLocation"
  ; /D= has set $INSTDIR already; without it Kvasir stays where it is.
  ${If} $Former != ""
  ${AndIf} $INSTDIR == "${DEFAULT_FOLDER}"
    StrCpy $INSTDIR $Former
  ${EndIf}
  ReadRegStr $0 HKCU "${KEY_UNINSTALL}" "${VALUE_QUAD}"
  ${If} $0 != ""
    ${VersionCompare} $0 "${QUAD}" $1
    ${If} $1 == 1
      MessageBox MB_OK|MB_ICONSTOP "A newer Kvasir is installed, whose chats ${VERSION} cannot read. To go back all the same, \
        remove the newer one first, with its chats." /SD IDOK
      SetErrorLevel ${ERROR_NEWER}
      Quit
    ${EndIf}
  ${EndIf}
FunctionEnd

; Program files go only into a folder of their own: what else lies there must never be taken for Kvasir's.
Function CheckFolder
  ${DirState} "$INSTDIR" $0
  ${If} $0 == 1
  ${AndIf} $INSTDIR != "${DEFAULT_FOLDER}" ; which bears its name, whatever an earlier removal left there
  ${AndIfNot} ${FileExists} "$INSTDIR\${COMMAND}"
  ${AndIfNot} ${FileExists} "$INSTDIR\${UNINSTALLER}"
    MessageBox MB_OK|MB_ICONEXCLAMATION "$INSTDIR holds something else. Choose an empty folder, or one that is not there \
      yet." /SD IDOK
    SetErrorLevel ${ERROR_FOLDER}
    ${If} ${Silent}
      Quit
    ${EndIf}
    Abort
  ${EndIf}
FunctionEnd

; The former version takes away its own program files, of which it alone has the list; it keeps what is the user's.
Function RemoveFormer ; the folder is on the stack
  Exch $0
  Push $1
  ${If} ${FileExists} "$0\${UNINSTALLER}"
    StrCpy $ProbeFolder $0
    Call RefuseWhileRunning
    DetailPrint "Removing the program files of the former version"
    ClearErrors
    ExecWait '"$0\${UNINSTALLER}" /S /UPGRADE _?=$0' $1
    ${If} ${Errors}
    ${OrIf} $1 != 0
      SetErrorLevel 2
      MessageBox MB_OK|MB_ICONSTOP "The former version in $0 could not be removed. Restart Windows and try again." /SD IDOK
      Quit
    ${EndIf}
    ${If} $0 != $INSTDIR
      Delete "$0\${UNINSTALLER}" ; it ran in place, and so could not delete itself
      RMDir "$0"
    ${EndIf}
  ${EndIf}
  Pop $1
  Pop $0
FunctionEnd

Section "Kvasir (required)" SectionProgram
  SectionIn RO
  Call CheckFolder ; a silent run has no page that did
  StrCpy $ProbeFolder $INSTDIR
  Call RefuseWhileRunning
  ${If} $Former != ""
  ${AndIf} $Former != $INSTDIR
    Push $Former
    Call RemoveFormer
  ${EndIf}
  Push $INSTDIR
  Call RemoveFormer

  DetailPrint "Copying Kvasir"
  SetDetailsPrint none
  SetOverwrite on
  !cd "${PROGRAM}"
  !include "${WORK}/install.nsh"
  SetDetailsPrint both
  SetOutPath "$INSTDIR"
  WriteUninstaller "$INSTDIR\${UNINSTALLER}"
  CreateShortcut "$SMPROGRAMS\${NAME}.lnk" "$INSTDIR\${WINDOW}" "" "$INSTDIR\${WINDOW}" 0 SW_SHOWNORMAL "" \
    "Chat with language models on this computer"
  !insertmacro WriteUninstallEntry
SectionEnd

Section "Offer Kvasir for .gguf files" SectionGguf
  !insertmacro WriteAssociation
SectionEnd

; --- removing ---------------------------------------------------------------------------------------------------------

Var Upgrading ; 1: only program files, for a newer version takes their place

Function un.onInit
  SetShellVarContext current
  SetRegView 64
  ${GetParameters} $0
  ClearErrors
  ${GetOptions} $0 "/UPGRADE" $1
  ${IfNot} ${Errors}
    StrCpy $Upgrading 1
  ${EndIf}
  ClearErrors
  ${GetOptions} $0 "/PURGE=" $1
  ${IfNot} ${Errors}
    Push $1
    Call un.ParsePurge
  ${EndIf}
  StrCpy $ProbeFolder $INSTDIR
  Call un.RefuseWhileRunning
FunctionEnd

Section "Uninstall"
  SetOutPath "$TEMP" ; a folder that is someone's current one cannot be removed
  ${If} $Upgrading != 1
    Call un.Purge
  ${EndIf}
  DetailPrint "Removing program files"
  SetDetailsPrint none
  !include "${WORK}/remove.nsh"
  SetDetailsPrint both
  ${If} $Upgrading != 1
    Delete "$SMPROGRAMS\${NAME}.lnk"
    !insertmacro DeleteAssociation
    DeleteRegKey HKCU "${KEY_UNINSTALL}"
    Delete "$INSTDIR\${UNINSTALLER}"
    RMDir "$INSTDIR"
    ${If} ${FileExists} "$INSTDIR\*.*"
      DetailPrint "$INSTDIR holds files that Kvasir did not install; they were left there."
    ${EndIf}
  ${EndIf}
SectionEnd
