<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de" sourcelanguage="en">
<context>
    <name>kvasir</name>
    <message numerus="yes">
        <source>({n} cores)</source>
        <translation>
            <numerusform>({n} Kern)</numerusform>
            <numerusform>({n} Kerne)</numerusform>
        </translation>
    </message>
    <message>
        <source>About Kvasir, and licences</source>
        <translation>Über Kvasir und Lizenzen</translation>
    </message>
    <message>
        <source>Add documents or pictures</source>
        <translation>Dokumente oder Bilder hinzufügen</translation>
    </message>
    <message>
        <source>Answer again</source>
        <translation>Neu antworten</translation>
    </message>
    <message>
        <source>Ask several: two to four answers side by side</source>
        <translation>Mehrere fragen: zwei bis vier Antworten nebeneinander</translation>
    </message>
    <message>
        <source>Break the line</source>
        <translation>Neue Zeile beginnen</translation>
    </message>
    <message>
        <source>Chat</source>
        <translation>Chat</translation>
    </message>
    <message>
        <source>Chat settings: system prompt and sampling</source>
        <translation>Einstellungen des Chats: Systemprompt und Sampling</translation>
    </message>
    <message>
        <source>Close the window</source>
        <translation>Fenster schließen</translation>
    </message>
    <message>
        <source>Draft models and heads (*.gguf *.safetensors *.pt *.bin config.json);;All files (*)</source>
        <translation>Entwurfsmodelle und Köpfe (*.gguf *.safetensors *.pt *.bin config.json);;Alle Dateien (*)</translation>
    </message>
    <message>
        <source>Edit the last message, from the empty message field</source>
        <translation>Die letzte Nachricht bearbeiten, vom leeren Eingabefeld aus</translation>
    </message>
    <message>
        <source>Find a command, a chat or a model</source>
        <translation>Befehl, Chat oder Modell suchen</translation>
    </message>
    <message>
        <source>Find in this chat</source>
        <translation>Im Chat suchen</translation>
    </message>
    <message>
        <source>Fold or unfold the plots</source>
        <translation>Diagramme auf- oder zuklappen</translation>
    </message>
    <message>
        <source>Get a model</source>
        <translation>Ein Modell holen</translation>
    </message>
    <message>
        <source>Go to Chat</source>
        <translation>Zum Chat</translation>
    </message>
    <message>
        <source>Go to Help</source>
        <translation>Zur Hilfe</translation>
    </message>
    <message>
        <source>Go to Lab</source>
        <translation>Zum Labor</translation>
    </message>
    <message>
        <source>Go to Models</source>
        <translation>Zu den Modellen</translation>
    </message>
    <message>
        <source>Go to Server</source>
        <translation>Zum Server</translation>
    </message>
    <message>
        <source>Go to Settings</source>
        <translation>Zu den Einstellungen</translation>
    </message>
    <message>
        <source>Go to the message field</source>
        <translation>Zum Eingabefeld</translation>
    </message>
    <message>
        <source>Highlight drafted tokens</source>
        <translation>Entworfene Token hervorheben</translation>
    </message>
    <message>
        <source>In the Lab: move between sides (Left, Right); Return runs, Esc cancels</source>
        <translation>Im Labor: zwischen den Seiten wechseln (Links, Rechts); Return startet, Esc bricht ab</translation>
    </message>
    <message>
        <source>In the panel: move between switches (Up, Down) or within one (Left, Right)</source>
        <translation>In der Leiste: zwischen Schaltern wechseln (Hoch, Herunter) oder in einem (Links, Rechts)</translation>
    </message>
    <message>
        <source>Keyboard shortcuts</source>
        <translation>Tastenkürzel</translation>
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
        <source>Larger text</source>
        <translation>Größerer Text</translation>
    </message>
    <message>
        <source>Log</source>
        <translation>Protokoll</translation>
    </message>
    <message>
        <source>Model</source>
        <translation>Modell</translation>
    </message>
    <message>
        <source>Models (*.gguf *.safetensors config.json);;All files (*)</source>
        <translation>Modelle (*.gguf *.safetensors config.json);;Alle Dateien (*)</translation>
    </message>
    <message>
        <source>New chat</source>
        <translation>Neuer Chat</translation>
    </message>
    <message>
        <source>Next match</source>
        <translation>Nächster Treffer</translation>
    </message>
    <message>
        <source>Open a model file</source>
        <translation>Modelldatei öffnen</translation>
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
        <source>Previous match</source>
        <translation>Voriger Treffer</translation>
    </message>
    <message>
        <source>Quick chat: a small window over all others</source>
        <translation>Schneller Chat: ein kleines Fenster über allen anderen</translation>
    </message>
    <message>
        <source>Quit</source>
        <translation>Beenden</translation>
    </message>
    <message>
        <source>Reload the model</source>
        <translation>Modell neu laden</translation>
    </message>
    <message>
        <source>Rename the chat, or what is chosen in the list of chats</source>
        <translation>Den Chat umbenennen, oder was in der Chatliste gewählt ist</translation>
    </message>
    <message>
        <source>Save an edited answer and let the model continue</source>
        <translation>Bearbeitete Antwort speichern und fortsetzen lassen</translation>
    </message>
    <message>
        <source>Search all chats</source>
        <translation>Alle Chats durchsuchen</translation>
    </message>
    <message>
        <source>Send the message</source>
        <translation>Die Nachricht senden</translation>
    </message>
    <message>
        <source>Show or hide the cache</source>
        <translation>Cache ein- oder ausblenden</translation>
    </message>
    <message>
        <source>Show or hide the list of chats</source>
        <translation>Chatliste ein- oder ausblenden</translation>
    </message>
    <message>
        <source>Show or hide the optimisations</source>
        <translation>Optimierungen ein- oder ausblenden</translation>
    </message>
    <message>
        <source>Smaller text</source>
        <translation>Kleinerer Text</translation>
    </message>
    <message>
        <source>Stop the answer, or cancel an edit</source>
        <translation>Antwort stoppen oder Bearbeitung abbrechen</translation>
    </message>
    <message>
        <source>Text at its usual size</source>
        <translation>Text in üblicher Größe</translation>
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
        <source>To the end of the chat, from the empty field or a message</source>
        <translation>Ans Ende des Chats (leeres Feld oder Nachricht)</translation>
    </message>
    <message>
        <source>To the next part of the window</source>
        <translation>Zum nächsten Teil des Fensters</translation>
    </message>
    <message>
        <source>To the part before</source>
        <translation>Zum vorherigen Teil</translation>
    </message>
    <message>
        <source>Unload the model</source>
        <translation>Modell entladen</translation>
    </message>
    <message>
        <source>Window</source>
        <translation>Fenster</translation>
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
