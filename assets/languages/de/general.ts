<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de" sourcelanguage="en">
<context>
    <name>kvasir</name>
    <message>
        <source>Draft models and heads (*.gguf *.safetensors *.pt *.bin config.json);;All files (*)</source>
        <translation>Entwurfsmodelle und Köpfe (*.gguf *.safetensors *.pt *.bin config.json);;Alle Dateien (*)</translation>
    </message>
    <message>
        <source>Kvasir cannot use {what}. Allow writing there, or set KVASIR_HOME to another folder.</source>
        <translation>Kvasir kann {what} nicht verwenden. Das Schreiben dort erlauben oder KVASIR_HOME auf einen anderen Ordner setzen.</translation>
    </message>
    <message>
        <source>Kvasir runs already (process {process} on {host}) and does not answer. Wait until its window reacts again, or end that process; then start Kvasir again. Its chats are in {folder}.</source>
        <translation>Kvasir läuft bereits (Prozess {process} auf {host}) und antwortet nicht. Warten, bis das Fenster wieder reagiert, oder den Prozess beenden; dann Kvasir erneut starten. Die Chats liegen in {folder}.</translation>
    </message>
    <message>
        <source>Kvasir runs already and does not answer. Wait until its window reacts again, or end that process; then start Kvasir again. Its chats are in {folder}.</source>
        <translation>Kvasir läuft bereits und antwortet nicht. Warten, bis das Fenster wieder reagiert, oder den Prozess beenden; dann Kvasir erneut starten. Die Chats liegen in {folder}.</translation>
    </message>
    <message>
        <source>Kvasir&apos;s window needs a display, and there is none here. Use `kvasir chat` for a chat in the terminal, or `kvasir serve` for the server.</source>
        <translation>Das Fenster von Kvasir braucht eine Anzeige, und hier gibt es keine. `kvasir chat` führt einen Chat im Terminal, `kvasir serve` startet den Server.</translation>
    </message>
    <message>
        <source>Models (*.gguf *.safetensors config.json);;All files (*)</source>
        <translation>Modelle (*.gguf *.safetensors config.json);;Alle Dateien (*)</translation>
    </message>
    <message>
        <source>Open it now</source>
        <translation>Jetzt öffnen</translation>
    </message>
    <message>
        <source>Opening {name}</source>
        <translation>{name} zu öffnen</translation>
    </message>
    <message>
        <source>The window needs system libraries that are not installed: {names}.
On Debian or Ubuntu run: sudo apt-get install {packages}
On another system install the packages that bring these files. `kvasir chat` and `kvasir serve` work without them.</source>
        <translation>Das Fenster braucht Systembibliotheken, die nicht installiert sind: {names}.
Unter Debian oder Ubuntu: sudo apt-get install {packages}
Auf anderen Systemen die Pakete installieren, die diese Dateien enthalten. `kvasir chat` und `kvasir serve` funktionieren auch ohne sie.</translation>
    </message>
    <message>
        <source>There is no {path}. Choose a GGUF file or the folder of a model with the model menu.</source>
        <translation>{path} gibt es nicht. Im Modellmenü lässt sich eine GGUF-Datei oder der Ordner eines Modells wählen.</translation>
    </message>
    <message>
        <source>by {name}</source>
        <translation>von {name}</translation>
    </message>
    <message>
        <source>exit code {code}</source>
        <translation>Exit-Code {code}</translation>
    </message>
    <message>
        <source>it was killed</source>
        <translation>abgebrochen</translation>
    </message>
    <message>
        <source>{busy}. {what} ends it.</source>
        <translation>{busy}. {what} beendet das.</translation>
    </message>
    <message>
        <source>{name} could not be started: {why}.</source>
        <translation>{name} ließ sich nicht starten: {why}.</translation>
    </message>
    <message>
        <source>{name} is not a GGUF file. Choose a .gguf file, or the folder of a model that has several files.</source>
        <translation>{name} ist keine GGUF-Datei. Zu wählen ist eine .gguf-Datei oder der Ordner eines Modells aus mehreren Dateien.</translation>
    </message>
    <message>
        <source>{name} stopped ({how}).</source>
        <translation>{name} endete ({how}).</translation>
    </message>
    <message>
        <source>{name} stopped ({how}): {words}.</source>
        <translation>{name} endete ({how}): {words}.</translation>
    </message>
    <message>
        <source>{path} cannot be read ({why}). Allow reading it, then open it again.</source>
        <translation>{path} lässt sich nicht lesen ({why}). Erst das Lesen erlauben, dann erneut öffnen.</translation>
    </message>
    <message>
        <source>{path} holds no model. Choose a folder with config.json in it, or a GGUF file.</source>
        <translation>{path} enthält kein Modell. Zu wählen ist ein Ordner mit config.json oder eine GGUF-Datei.</translation>
    </message>
    <message>
        <source>{path} is not a file. Choose a GGUF file or the folder of a model with the model menu.</source>
        <translation>{path} ist keine Datei. Im Modellmenü lässt sich eine GGUF-Datei oder der Ordner eines Modells wählen.</translation>
    </message>
</context>
</TS>
