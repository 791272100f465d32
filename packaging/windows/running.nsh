; Whether one of the programs in $ProbeFolder runs: Windows lets nobody write to the file of a running program.

Var ProbeFolder

!macro ProbeProgram file
  ${If} $1 == ""
  ${AndIf} ${FileExists} "$ProbeFolder\${file}"
    ClearErrors
    FileOpen $0 "$ProbeFolder\${file}" a
    ${If} ${Errors}
      StrCpy $1 "${file}"
    ${Else}
      FileClose $0
    ${EndIf}
  ${EndIf}
!macroend

; Asks to close it, again and again; ends the run when told to, or when nobody can be asked. It closes nothing itself:
; an answer may be half written.
!macro RefuseWhileRunning un
Function ${un}RefuseWhileRunning
  Push $0
  Push $1
  again:
  StrCpy $1 ""
  !insertmacro ProbeProgram "${WINDOW}"
  !insertmacro ProbeProgram "kvasir-engine.exe"
  !insertmacro ProbeProgram "${COMMAND}"
  !insertmacro ProbeProgram "python\python.exe" ; the engine of a GPU pack
  !insertmacro ProbeProgram "tools\uv.exe" ; the installation of one
  ${If} $1 != ""
    MessageBox MB_RETRYCANCEL|MB_ICONEXCLAMATION "Kvasir is running ($1 in $ProbeFolder). Close its window and every \
      command that uses it, then try again." /SD IDCANCEL IDRETRY again
    SetErrorLevel ${ERROR_RUNNING}
    Quit
  ${EndIf}
  Pop $1
  Pop $0
FunctionEnd
!macroend

!insertmacro RefuseWhileRunning ""
!insertmacro RefuseWhileRunning "un."
