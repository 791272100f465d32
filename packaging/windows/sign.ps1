# Sign one file with the certificate that the workflow has written: sign.ps1 FILE. $env:PASSWORD opens it.
param([Parameter(Mandatory)][string] $File)
$ErrorActionPreference = 'Stop'

$tool = Get-ChildItem "${env:ProgramFiles(x86)}\Windows Kits\10\bin\*\x64\signtool.exe" |
  Sort-Object { [version] $_.Directory.Parent.Name } | Select-Object -Last 1
if (-not $tool) { throw 'There is no signtool.exe: install the Windows SDK.' }
& $tool.FullName sign /fd sha256 /td sha256 /tr 'http://timestamp.digicert.com' `
  /f "$env:RUNNER_TEMP\certificate.pfx" /p $env:PASSWORD /d 'Kvasir' $File
if ($LASTEXITCODE) { throw "signtool failed on $File." }
