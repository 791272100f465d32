# Install silently, try the program, upgrade in place, remove it, and list what is left: try.ps1 SETUP.exe
#
# On a machine of its own only: it installs for the current user, and asks the uninstaller to delete all that is Kvasir's.
param([Parameter(Mandatory)][string] $Setup)
$ErrorActionPreference = 'Stop'

$here = $PSScriptRoot
$folder = "$env:LOCALAPPDATA\Programs\Kvasir"
$entry = 'HKCU:\Software\Microsoft\Windows\CurrentVersion\Uninstall\Kvasir'
$version = python "$here\..\release.py" version

function Invoke-Silent([string] $Program, [string] $Arguments, [int] $Expected = 0) {
  $process = Start-Process -FilePath $Program -ArgumentList $Arguments -Wait -PassThru
  if ($process.ExitCode -ne $Expected) { throw "$Program $Arguments ended with $($process.ExitCode), not $Expected." }
}
function Assert([bool] $Condition, [string] $Sentence) { if (-not $Condition) { throw $Sentence } }

Invoke-Silent $Setup '/S'
$registered = Get-ItemProperty $entry
Assert ($registered.DisplayVersion -eq $version) "The entry says $($registered.DisplayVersion)."
Assert (Test-Path "$env:APPDATA\Microsoft\Windows\Start Menu\Programs\Kvasir.lnk") 'There is no Start-menu entry.'
$offered = Get-ItemProperty 'HKCU:\Software\Classes\.gguf\OpenWithProgids'
Assert ($offered.PSObject.Properties.Name -contains 'Kvasir.gguf') 'Kvasir is not offered for .gguf files.'
Assert (-not (Get-Item 'HKCU:\Software\Classes\.gguf').GetValue('')) 'The default for .gguf files was taken.'

python "$here\..\smoke\portable.py" $folder --version $version
Assert ($LASTEXITCODE -eq 0) 'The smoke test failed.'

# While the program runs nothing is replaced.
$window = Start-Process "$folder\kvasir-window.exe" -PassThru
Start-Sleep 5
Invoke-Silent $Setup '/S' 3
Stop-Process -Id $window.Id
Get-Process kvasir-engine -ErrorAction SilentlyContinue | Where-Object Path -Like "$folder\*" | Stop-Process
Start-Sleep 5

# A file of the user's in the program folder outlives upgrade and removal.
Set-Content "$folder\mine.txt" 'mine'
Invoke-Silent $Setup '/S'
Assert (Test-Path "$folder\mine.txt") 'The upgrade deleted a file that it did not install.'

# In place (_?=), so that this waits for it and hears its exit code; the uninstaller itself then stays.
Invoke-Silent "$folder\uninstall.exe" "/S /PURGE=all _?=$folder"
$left = @(Get-ChildItem $folder -Recurse -File | ForEach-Object { $_.FullName.Substring($folder.Length + 1) })
Write-Output "Left in the program folder: $($left -join ', ')"
Assert (-not (Compare-Object $left @('mine.txt', 'uninstall.exe'))) 'Something else was left, or taken.'
Assert (-not (Test-Path $entry)) 'The entry in the list of programs was left.'
Assert (-not (Test-Path 'HKCU:\Software\Classes\Kvasir.gguf')) 'The association was left.'
$data = @(Get-ChildItem "$env:LOCALAPPDATA\kvasir" -Recurse -File -ErrorAction SilentlyContinue)
Write-Output "Left of the data after /PURGE=all: $($data.FullName -join ', ')"
Assert ($data.Count -eq 0) 'Data was left.'
Remove-Item $folder -Recurse
