; What the uninstaller removes beside the program: nothing that was not ticked, or named in /PURGE=word,word or /PURGE=all.
; The removal itself is `kvasir uninstall`, which alone knows where things lie.

; A macro for each item: the word of /PURGE and of --purge-WORD, its place on the page, and what the page says.
!macro EachItem macro
  !insertmacro ${macro} settings 30u "Settings"
  !insertmacro ${macro} chats 43u "Chats"
  !insertmacro ${macro} models 56u "Models in Kvasir's own folder"
  !insertmacro ${macro} making 69u "Models that are not finished, and measurements"
  !insertmacro ${macro} heads 82u "Heads that were trained here"
  !insertmacro ${macro} gpu 95u "GPU packs"
  !insertmacro ${macro} caches 108u "Caches, which can be made again"
  !insertmacro ${macro} logs 121u "Log files"
!macroend

!macro DeclareItem word y text
  Var Purge_${word} ; 1: to be removed
  Var Box_${word}
!macroend
!insertmacro EachItem DeclareItem

Var PurgeFlags

!macro CreateBox word y text
  ${NSD_CreateCheckbox} 0 ${y} 100% 11u "${text}"
  Pop $Box_${word}
  ${If} $Purge_${word} == 1
    ${NSD_Check} $Box_${word}
  ${EndIf}
!macroend

Function un.ShowChoices
  !insertmacro MUI_HEADER_TEXT "Remove more than the program?" "Everything of yours is kept unless you tick it."
  nsDialogs::Create 1018
  Pop $0
  ${If} $0 == error
    Abort
  ${EndIf}
  ${NSD_CreateLabel} 0 0 100% 26u "A Kvasir that is installed again finds what is kept. Models in folders of your own \
    are never touched. Tick what is to be deleted for good:"
  Pop $0
  !insertmacro EachItem CreateBox
  nsDialogs::Show
FunctionEnd

!macro TakeBox word y text
  ${NSD_GetState} $Box_${word} $0
  ${If} $0 == ${BST_CHECKED}
    StrCpy $Purge_${word} 1
  ${Else}
    StrCpy $Purge_${word} 0
  ${EndIf}
!macroend

Function un.TakeChoices
  !insertmacro EachItem TakeBox
FunctionEnd

!macro MatchWord word y text
  ${If} $3 == "${word}"
  ${OrIf} $3 == "all"
    StrCpy $Purge_${word} 1
    StrCpy $4 1
  ${EndIf}
!macroend

Function un.ParsePurge ; the words, with commas between them, are on the stack
  Exch $0
  Push $1
  Push $2
  Push $3
  Push $4
  ${DoWhile} $0 != ""
    StrCpy $1 0
    ${Do}
      StrCpy $2 $0 1 $1
      ${If} $2 == ""
      ${OrIf} $2 == ","
        ${ExitDo}
      ${EndIf}
      IntOp $1 $1 + 1
    ${Loop}
    StrCpy $3 $0 $1
    IntOp $1 $1 + 1
    StrCpy $0 $0 "" $1
    StrCpy $4 0
    !insertmacro EachItem MatchWord
    ${If} $4 == 0
      MessageBox MB_OK|MB_ICONSTOP "/PURGE does not know '$3'. It takes settings, chats, models, heads, gpu, caches, logs, or \
        all; nothing was removed." /SD IDOK
      SetErrorLevel ${ERROR_USAGE}
      Quit
    ${EndIf}
  ${Loop}
  Pop $4
  Pop $3
  Pop $2
  Pop $1
  Pop $0
FunctionEnd

!macro AddFlag word y text
  ${If} $Purge_${word} == 1
    StrCpy $PurgeFlags "$PurgeFlags --purge-${word}"
  ${EndIf}
!macroend

Function un.Purge
  StrCpy $PurgeFlags ""
  !insertmacro EachItem AddFlag
  ${If} $PurgeFlags == ""
    Return
  ${EndIf}
  DetailPrint "Removing what was ticked"
  nsExec::ExecToLog '"$INSTDIR\${COMMAND}" uninstall --yes$PurgeFlags'
  Pop $0
  ${If} $0 != 0
    ; The program stays, so that it can be asked again, unless someone decides otherwise.
    MessageBox MB_YESNO|MB_ICONEXCLAMATION "Not all that was ticked could be removed; the list says what. Remove the \
      program all the same?" /SD IDNO IDYES goOn
    SetErrorLevel ${ERROR_PURGE}
    Quit
    goOn:
  ${EndIf}
FunctionEnd
