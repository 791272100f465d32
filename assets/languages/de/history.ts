<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de" sourcelanguage="en">
<context>
    <name>kvasir</name>
    <message>
        <source>A part of the history could not be read and is at its default: {what}.</source>
        <translation>Ein Teil des Verlaufs ließ sich nicht lesen und hat seinen Vorgabewert: {what}.</translation>
    </message>
    <message>
        <source>Another program holds the history at {path}. Close it, then start Kvasir again.</source>
        <translation>Ein anderes Programm hält den Verlauf {path} offen. Erst dieses schließen, dann Kvasir neu starten.</translation>
    </message>
    <message>
        <source>Answer</source>
        <translation>Antwort</translation>
    </message>
    <message>
        <source>Archive</source>
        <translation>Archivieren</translation>
    </message>
    <message>
        <source>Archived</source>
        <translation>Archiviert</translation>
    </message>
    <message>
        <source>Archived “{title}”</source>
        <translation>„{title}“ archiviert</translation>
    </message>
    <message>
        <source>Call</source>
        <comment>of a tool</comment>
        <translation>Aufruf</translation>
    </message>
    <message>
        <source>Call of {tool}</source>
        <translation>Aufruf von {tool}</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>Abbrechen</translation>
    </message>
    <message>
        <source>Chat</source>
        <translation>Chat</translation>
    </message>
    <message>
        <source>Chats</source>
        <translation>Chats</translation>
    </message>
    <message>
        <source>Chats of Kvasir, OpenAI, Open WebUI, LM Studio (*.json *.zip)</source>
        <translation>Chats von Kvasir, OpenAI, Open WebUI, LM Studio (*.json *.zip)</translation>
    </message>
    <message>
        <source>Close</source>
        <translation>Schließen</translation>
    </message>
    <message>
        <source>Close anyway</source>
        <translation>Trotzdem schließen</translation>
    </message>
    <message>
        <source>Delete</source>
        <translation>Löschen</translation>
    </message>
    <message>
        <source>Delete the folder, keep its chats</source>
        <translation>Ordner löschen, Chats behalten</translation>
    </message>
    <message>
        <source>Deleted the folder “{name}”.</source>
        <translation>Ordner „{name}“ gelöscht.</translation>
    </message>
    <message>
        <source>Deleted “{title}”</source>
        <translation>„{title}“ gelöscht</translation>
    </message>
    <message>
        <source>Document: {name} ({kind}, {size})</source>
        <translation>Dokument: {name} ({kind}, {size})</translation>
    </message>
    <message numerus="yes">
        <source>Document: {name} ({kind}, {size}; {sent:,} of {n:,} passages sent)</source>
        <translation>
            <numerusform>Dokument: {name} ({kind}, {size}; {sent:,} von {n:,} Abschnitt gesendet)</numerusform>
            <numerusform>Dokument: {name} ({kind}, {size}; {sent:,} von {n:,} Abschnitten gesendet)</numerusform>
        </translation>
    </message>
    <message>
        <source>Documents…</source>
        <translation>Dokumente…</translation>
    </message>
    <message>
        <source>Duplicate</source>
        <translation>Duplizieren</translation>
    </message>
    <message>
        <source>Earlier</source>
        <translation>Früher</translation>
    </message>
    <message>
        <source>Everything, all branches included, for a backup or another Kvasir, which can import it.</source>
        <translation>Alles mit allen Zweigen, als Sicherung oder für ein anderes Kvasir, das es importieren kann.</translation>
    </message>
    <message>
        <source>Export all chats</source>
        <translation>Alle Chats exportieren</translation>
    </message>
    <message>
        <source>Export all chats…</source>
        <translation>Alle Chats exportieren…</translation>
    </message>
    <message>
        <source>Export the chat</source>
        <translation>Chat exportieren</translation>
    </message>
    <message>
        <source>Export the folder “{name}”</source>
        <translation>Ordner „{name}“ exportieren</translation>
    </message>
    <message>
        <source>Export to a new folder in</source>
        <translation>Exportieren in einen neuen Ordner in</translation>
    </message>
    <message>
        <source>Export to a zip file</source>
        <translation>In eine Zip-Datei exportieren</translation>
    </message>
    <message>
        <source>Exporting…</source>
        <translation>Export läuft…</translation>
    </message>
    <message>
        <source>Export…</source>
        <translation>Exportieren…</translation>
    </message>
    <message>
        <source>Folders</source>
        <translation>Ordner</translation>
    </message>
    <message>
        <source>Format</source>
        <translation>Format</translation>
    </message>
    <message>
        <source>Found</source>
        <translation>Gefunden</translation>
    </message>
    <message>
        <source>Import</source>
        <translation>Import</translation>
    </message>
    <message>
        <source>Import chats</source>
        <translation>Chats importieren</translation>
    </message>
    <message>
        <source>Import chats…</source>
        <translation>Chats importieren…</translation>
    </message>
    <message>
        <source>Import undone</source>
        <translation>Import rückgängig gemacht</translation>
    </message>
    <message>
        <source>Importing…</source>
        <translation>Import läuft…</translation>
    </message>
    <message>
        <source>Into</source>
        <translation>Ziel</translation>
    </message>
    <message>
        <source>Its chat is still in the list.</source>
        <translation>Sein Chat bleibt in der Liste.</translation>
    </message>
    <message>
        <source>Its chats are still in the list.</source>
        <translation>Seine Chats bleiben in der Liste.</translation>
    </message>
    <message numerus="yes">
        <source>Its {n:,} documents are not used any more.</source>
        <translation>
            <numerusform>Sein Dokument wird nicht mehr verwendet.</numerusform>
            <numerusform>Seine {n:,} Dokumente werden nicht mehr verwendet.</numerusform>
        </translation>
    </message>
    <message>
        <source>JSON, all branches</source>
        <translation>JSON, alle Zweige</translation>
    </message>
    <message>
        <source>Keep open</source>
        <translation>Offen lassen</translation>
    </message>
    <message>
        <source>Kvasir chats {day}</source>
        <translation>Kvasir-Chats {day}</translation>
    </message>
    <message>
        <source>Kvasir, unsaved chats.md</source>
        <translation>Kvasir, nicht gespeicherte Chats.md</translation>
    </message>
    <message>
        <source>Left out: {parts}.</source>
        <translation>Ausgelassen: {parts}.</translation>
    </message>
    <message>
        <source>More: folders, tags, import and export</source>
        <translation>Mehr: Ordner, Schlagwörter, Import und Export</translation>
    </message>
    <message>
        <source>Move to folder</source>
        <translation>In Ordner verschieben</translation>
    </message>
    <message>
        <source>Name of the folder</source>
        <translation>Name des Ordners</translation>
    </message>
    <message>
        <source>New chat</source>
        <translation>Neuer Chat</translation>
    </message>
    <message>
        <source>New chat in this folder</source>
        <translation>Neuer Chat in diesem Ordner</translation>
    </message>
    <message>
        <source>New folder</source>
        <translation>Neuer Ordner</translation>
    </message>
    <message>
        <source>New folder…</source>
        <translation>Neuer Ordner…</translation>
    </message>
    <message>
        <source>No folder</source>
        <translation>Kein Ordner</translation>
    </message>
    <message>
        <source>Not sent</source>
        <translation>Nicht gesendet</translation>
    </message>
    <message>
        <source>Nothing found</source>
        <translation>Nichts gefunden</translation>
    </message>
    <message>
        <source>Nothing that you see is lost while Kvasir runs.</source>
        <translation>Solange Kvasir läuft, geht nichts von dem verloren, was zu sehen ist.</translation>
    </message>
    <message>
        <source>Or go back to the chats from before the upgrade: move that file elsewhere and rename {copy} to {name}; what was said since then stays in the later file.</source>
        <translation>Oder zurück zu den Chats von vor der Aktualisierung: diese Datei verschieben und {copy} in {name} umbenennen; was seither gesagt wurde, bleibt in der späteren Datei.</translation>
    </message>
    <message>
        <source>Pin</source>
        <translation>Anheften</translation>
    </message>
    <message>
        <source>Pinned</source>
        <translation>Angeheftet</translation>
    </message>
    <message>
        <source>Place</source>
        <translation>Ort</translation>
    </message>
    <message>
        <source>Progress of the export</source>
        <translation>Fortschritt des Exports</translation>
    </message>
    <message>
        <source>Progress of the import</source>
        <translation>Fortschritt des Imports</translation>
    </message>
    <message>
        <source>Removing what was imported…</source>
        <translation>Importiertes wird entfernt…</translation>
    </message>
    <message>
        <source>Rename</source>
        <translation>Umbenennen</translation>
    </message>
    <message>
        <source>Result</source>
        <translation>Ergebnis</translation>
    </message>
    <message>
        <source>Result of {tool}</source>
        <translation>Ergebnis von {tool}</translation>
    </message>
    <message>
        <source>Save elsewhere…</source>
        <translation>Anderswo speichern…</translation>
    </message>
    <message>
        <source>Save the chats elsewhere</source>
        <translation>Chats anderswo speichern</translation>
    </message>
    <message>
        <source>Search all chats</source>
        <translation>Alle Chats durchsuchen</translation>
    </message>
    <message>
        <source>Show chats tagged</source>
        <translation>Chats mit Schlagwort zeigen</translation>
    </message>
    <message>
        <source>System</source>
        <translation>System</translation>
    </message>
    <message>
        <source>System prompt</source>
        <translation>Systemprompt</translation>
    </message>
    <message>
        <source>Tag: {tag}</source>
        <translation>Schlagwort: {tag}</translation>
    </message>
    <message>
        <source>Tags</source>
        <translation>Schlagwörter</translation>
    </message>
    <message>
        <source>Tags of other chats</source>
        <translation>Schlagwörter anderer Chats</translation>
    </message>
    <message>
        <source>Tags, separated by commas</source>
        <translation>Schlagwörter, durch Kommas getrennt</translation>
    </message>
    <message>
        <source>Tags…</source>
        <translation>Schlagwörter…</translation>
    </message>
    <message>
        <source>The branch that each chat shows, as pages for a browser that load nothing from elsewhere.</source>
        <translation>Der gezeigte Zweig jedes Chats, als Seiten für den Browser, die nichts von anderswo laden.</translation>
    </message>
    <message>
        <source>The branch that each chat shows, as text that any editor opens.</source>
        <translation>Der gezeigte Zweig jedes Chats, als Text, den jeder Editor öffnet.</translation>
    </message>
    <message>
        <source>The branch that each chat shows, on pages to print. Takes the longest.</source>
        <translation>Der gezeigte Zweig jedes Chats, auf Seiten zum Drucken. Dauert am längsten.</translation>
    </message>
    <message>
        <source>The export was cancelled, and nothing is left of it.</source>
        <translation>Der Export wurde abgebrochen, und nichts davon ist übrig.</translation>
    </message>
    <message>
        <source>The file could not be written ({why}). Choose another folder.</source>
        <translation>Die Datei ließ sich nicht schreiben ({why}). Einen anderen Ordner wählen.</translation>
    </message>
    <message>
        <source>The file was left as it is, as no copy could be made of it ({why}).</source>
        <translation>Die Datei blieb, wie sie ist, da sich keine Kopie anlegen ließ ({why}).</translation>
    </message>
    <message>
        <source>The history as it was is kept as {path}.</source>
        <translation>Der Verlauf, wie er war, bleibt als {path} erhalten.</translation>
    </message>
    <message>
        <source>The history at {path} cannot be opened ({why}). Check the folder&apos;s permissions and space.</source>
        <translation>Der Verlauf {path} lässt sich nicht öffnen ({why}). Rechte und Platz im Ordner prüfen.</translation>
    </message>
    <message>
        <source>The history at {path} could not be brought up to date ({why}). It was left as it was, and {copy} is a copy of it. Free some space and start again; to begin a new history, move the file elsewhere.</source>
        <translation>Der Verlauf {path} ließ sich nicht auf den neuen Stand bringen ({why}). Er blieb, wie er war, und {copy} ist eine Kopie davon. Platz schaffen und neu starten; für einen neuen Verlauf die Datei verschieben.</translation>
    </message>
    <message>
        <source>The history at {path} is of an earlier version, and could not be copied before it is brought up to date ({why}). It was left as it was. Free {size} on that disk and allow writing there.</source>
        <translation>Der Verlauf {path} stammt von einer früheren Version und ließ sich vor der Aktualisierung nicht kopieren ({why}). Er blieb, wie er war. {size} auf diesem Datenträger freimachen und das Schreiben dort erlauben.</translation>
    </message>
    <message>
        <source>The history at {path} was removed while Kvasir ran. It is written there again.</source>
        <translation>Der Verlauf {path} wurde entfernt, während Kvasir lief. Er wird dort neu geschrieben.</translation>
    </message>
    <message>
        <source>The history at {path} was written by {by} (schema {found}), and this is Kvasir {installed} (schema {known}), which cannot read it. Nothing was changed: install the later version again.</source>
        <translation>Den Verlauf {path} hat {by} geschrieben (Schema {found}); dies ist Kvasir {installed} (Schema {known}), das ihn nicht lesen kann. Nichts wurde geändert: die spätere Version wieder installieren.</translation>
    </message>
    <message>
        <source>The history could not be read, so a new one was begun. The old file is kept as {path}.</source>
        <translation>Der Verlauf ließ sich nicht lesen; deshalb wurde ein neuer begonnen. Die alte Datei bleibt als {path} erhalten.</translation>
    </message>
    <message>
        <source>The history could not be saved: another program holds the file. It is saved as soon as that program lets go of it.</source>
        <translation>Der Verlauf ließ sich nicht speichern: Ein anderes Programm hält die Datei offen. Er wird gespeichert, sobald dieses sie freigibt.</translation>
    </message>
    <message>
        <source>The history could not be saved: the disk is full. Free some space: it is then saved automatically.</source>
        <translation>Der Verlauf ließ sich nicht speichern: Der Datenträger ist voll. Sobald Platz frei ist, wird er von selbst gespeichert.</translation>
    </message>
    <message>
        <source>The history could not be saved: {why}. It is tried again; allow writing to {folder} and check the free space there.</source>
        <translation>Der Verlauf ließ sich nicht speichern: {why}. Es wird erneut versucht; das Schreiben in {folder} erlauben und den freien Platz dort prüfen.</translation>
    </message>
    <message>
        <source>The history could not be written further ({why}). Allow writing there and import again.</source>
        <translation>Der Verlauf ließ sich nicht weiter schreiben ({why}). Das Schreiben dort erlauben und erneut importieren.</translation>
    </message>
    <message>
        <source>The history could not be written further, because the disk is full. Free some space.</source>
        <translation>Der Verlauf ließ sich nicht weiter schreiben, weil der Datenträger voll ist. Platz schaffen.</translation>
    </message>
    <message>
        <source>The import was cancelled.</source>
        <translation>Der Import wurde abgebrochen.</translation>
    </message>
    <message>
        <source>The window can be used meanwhile.</source>
        <translation>Das Fenster lässt sich währenddessen benutzen.</translation>
    </message>
    <message>
        <source>This version of Kvasir keeps them in another way. It happens once, a copy of the chats as they were is kept, and nothing is lost if it is interrupted. Then the window opens.</source>
        <translation>Diese Version von Kvasir speichert sie anders. Das geschieht einmal; eine Kopie der bisherigen Chats bleibt erhalten, und bei einer Unterbrechung geht nichts verloren. Danach öffnet sich das Fenster.</translation>
    </message>
    <message>
        <source>Thought for a moment</source>
        <translation>Einen Moment nachgedacht</translation>
    </message>
    <message>
        <source>Thought for {minutes} min {seconds} s</source>
        <translation>{minutes} min {seconds} s nachgedacht</translation>
    </message>
    <message>
        <source>Thought for {seconds} s</source>
        <translation>{seconds} s nachgedacht</translation>
    </message>
    <message>
        <source>Title of the chat</source>
        <translation>Titel des Chats</translation>
    </message>
    <message>
        <source>To begin a new history with this version, move that file elsewhere.</source>
        <translation>Für einen neuen Verlauf mit dieser Version die Datei verschieben.</translation>
    </message>
    <message>
        <source>Today</source>
        <translation>Heute</translation>
    </message>
    <message>
        <source>Unarchive</source>
        <translation>Aus dem Archiv holen</translation>
    </message>
    <message>
        <source>Undo</source>
        <translation>Rückgängig</translation>
    </message>
    <message>
        <source>Undo the import</source>
        <translation>Import rückgängig machen</translation>
    </message>
    <message>
        <source>Unpin</source>
        <translation>Lösen</translation>
    </message>
    <message>
        <source>Yesterday</source>
        <translation>Gestern</translation>
    </message>
    <message>
        <source>You</source>
        <translation>Sie</translation>
    </message>
    <message>
        <source>Your chats are being brought up to date</source>
        <translation>Die Chats werden auf den neuen Stand gebracht</translation>
    </message>
    <message>
        <source>a date</source>
        <translation>ein Datum</translation>
    </message>
    <message>
        <source>a folder</source>
        <translation>ein Ordner</translation>
    </message>
    <message>
        <source>a later version of Kvasir</source>
        <comment>written by</comment>
        <translation>eine spätere Version von Kvasir</translation>
    </message>
    <message>
        <source>already here</source>
        <translation>schon vorhanden</translation>
    </message>
    <message>
        <source>an answer is being written</source>
        <translation>eine Antwort entsteht</translation>
    </message>
    <message>
        <source>another file was put at {path}</source>
        <translation>an {path} liegt jetzt eine andere Datei</translation>
    </message>
    <message>
        <source>another file was put at {path}, and what is shown here is not in it</source>
        <translation>an {path} liegt jetzt eine andere Datei, die das hier Gezeigte nicht enthält</translation>
    </message>
    <message>
        <source>answered, not read yet</source>
        <translation>beantwortet, noch nicht gelesen</translation>
    </message>
    <message>
        <source>archive</source>
        <translation>Archiv</translation>
    </message>
    <message>
        <source>archived</source>
        <translation>archiviert</translation>
    </message>
    <message>
        <source>attached documents</source>
        <translation>angehängte Dokumente</translation>
    </message>
    <message>
        <source>chat</source>
        <translation>Chat</translation>
    </message>
    <message>
        <source>folded</source>
        <translation>zugeklappt</translation>
    </message>
    <message>
        <source>folder</source>
        <translation>Ordner</translation>
    </message>
    <message>
        <source>interrupted</source>
        <translation>unterbrochen</translation>
    </message>
    <message>
        <source>it ends in the middle, or is damaged</source>
        <translation>sie endet mittendrin oder ist beschädigt</translation>
    </message>
    <message>
        <source>it has no chats that Kvasir knows</source>
        <translation>sie enthält keine Chats, die Kvasir kennt</translation>
    </message>
    <message>
        <source>it is empty</source>
        <translation>sie ist leer</translation>
    </message>
    <message>
        <source>it is nested too deeply</source>
        <translation>sie ist zu tief verschachtelt</translation>
    </message>
    <message>
        <source>lists of sources</source>
        <translation>Quellenlisten</translation>
    </message>
    <message>
        <source>no file of chats is in it</source>
        <translation>sie enthält keine Datei mit Chats</translation>
    </message>
    <message>
        <source>not chats</source>
        <translation>keine Chats</translation>
    </message>
    <message>
        <source>of a later version of Kvasir</source>
        <translation>von einer späteren Version von Kvasir</translation>
    </message>
    <message>
        <source>one of its chats is too large, or it is damaged</source>
        <translation>einer ihrer Chats ist zu groß, oder sie ist beschädigt</translation>
    </message>
    <message>
        <source>one zip file</source>
        <translation>eine Zip-Datei</translation>
    </message>
    <message>
        <source>open</source>
        <comment>a folder</comment>
        <translation>aufgeklappt</translation>
    </message>
    <message>
        <source>picture</source>
        <translation>Bild</translation>
    </message>
    <message>
        <source>pictures in answers</source>
        <translation>Bilder in Antworten</translation>
    </message>
    <message>
        <source>pictures that are not in the file</source>
        <translation>Bilder, die nicht in der Datei sind</translation>
    </message>
    <message>
        <source>recordings</source>
        <translation>Aufnahmen</translation>
    </message>
    <message>
        <source>tagged {tags}</source>
        <translation>Schlagwörter: {tags}</translation>
    </message>
    <message>
        <source>the calls of tools</source>
        <translation>die Werkzeugaufrufe</translation>
    </message>
    <message>
        <source>the choice of the folder&apos;s documents</source>
        <translation>die Auswahl der Dokumente des Ordners</translation>
    </message>
    <message>
        <source>the choice of tools</source>
        <translation>die Auswahl der Werkzeuge</translation>
    </message>
    <message>
        <source>the date of the last use</source>
        <translation>das Datum der letzten Nutzung</translation>
    </message>
    <message>
        <source>the folder</source>
        <translation>der Ordner</translation>
    </message>
    <message>
        <source>the highlights of drafted tokens</source>
        <translation>die Hervorhebung entworfener Token</translation>
    </message>
    <message>
        <source>the model of another server</source>
        <translation>das Modell eines anderen Servers</translation>
    </message>
    <message>
        <source>the name of the adapter</source>
        <translation>der Name des Adapters</translation>
    </message>
    <message>
        <source>the sampling settings</source>
        <translation>die Sampling-Einstellungen</translation>
    </message>
    <message>
        <source>the statistics of an answer</source>
        <translation>die Statistik einer Antwort</translation>
    </message>
    <message>
        <source>the system prompt</source>
        <translation>der Systemprompt</translation>
    </message>
    <message>
        <source>the tags</source>
        <translation>die Schlagwörter</translation>
    </message>
    <message>
        <source>the text of a message</source>
        <translation>der Text einer Nachricht</translation>
    </message>
    <message>
        <source>the thinking</source>
        <translation>das Nachdenken</translation>
    </message>
    <message>
        <source>the title</source>
        <translation>der Titel</translation>
    </message>
    <message>
        <source>the zip is damaged</source>
        <translation>die Zip-Datei ist beschädigt</translation>
    </message>
    <message>
        <source>tool calls and results</source>
        <translation>Werkzeugaufrufe und Ergebnisse</translation>
    </message>
    <message>
        <source>with parts that cannot be read</source>
        <translation>mit unlesbaren Teilen</translation>
    </message>
    <message>
        <source>without messages</source>
        <translation>ohne Nachrichten</translation>
    </message>
    <message>
        <source>work, to read</source>
        <translation>Arbeit, zu lesen</translation>
    </message>
    <message>
        <source>{chats} with {messages} imported.</source>
        <translation>{chats} mit {messages} importiert.</translation>
    </message>
    <message>
        <source>{done:,} of {total:,}</source>
        <translation>{done:,} von {total:,}</translation>
    </message>
    <message numerus="yes">
        <source>{n:,} chats</source>
        <translation>
            <numerusform>{n:,} Chat</numerusform>
            <numerusform>{n:,} Chats</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n:,} chats exported to {path}.</source>
        <translation>
            <numerusform>{n:,} Chat nach {path} exportiert.</numerusform>
            <numerusform>{n:,} Chats nach {path} exportiert.</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n:,} chats, each a file</source>
        <translation>
            <numerusform>{n:,} Chat als Datei</numerusform>
            <numerusform>{n:,} Chats, jeder eine Datei</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n:,} documents</source>
        <translation>
            <numerusform>1 Dokument</numerusform>
            <numerusform>{n:,} Dokumente</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n:,} imported chats removed.</source>
        <translation>
            <numerusform>{n:,} importierter Chat entfernt.</numerusform>
            <numerusform>{n:,} importierte Chats entfernt.</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n:,} messages</source>
        <translation>
            <numerusform>{n:,} Nachricht</numerusform>
            <numerusform>{n:,} Nachrichten</numerusform>
        </translation>
    </message>
    <message>
        <source>{n:,} skipped: {reasons}.</source>
        <translation>{n:,} übersprungen: {reasons}.</translation>
    </message>
    <message>
        <source>{name} (edited)</source>
        <translation>{name} (bearbeitet)</translation>
    </message>
    <message numerus="yes">
        <source>{n} chats are not saved in the history. If Kvasir closes now, what was said last is lost.</source>
        <translation>
            <numerusform>{n} Chat ist nicht im Verlauf gespeichert. Schließt Kvasir jetzt, geht das zuletzt Gesagte verloren.</numerusform>
            <numerusform>{n} Chats sind nicht im Verlauf gespeichert. Schließt Kvasir jetzt, geht das zuletzt Gesagte verloren.</numerusform>
        </translation>
    </message>
    <message>
        <source>{part} of “{title}”</source>
        <translation>{part} von „{title}“</translation>
    </message>
    <message>
        <source>{path} could not be written ({why}). Choose another place or free some space.</source>
        <translation>{path} ließ sich nicht schreiben ({why}). Einen anderen Ort wählen oder Platz schaffen.</translation>
    </message>
    <message>
        <source>{title} (copy)</source>
        <translation>{title} (Kopie)</translation>
    </message>
    <message>
        <source>“{name}” could not be read ({why}). Check that it is still there.</source>
        <translation>„{name}“ ließ sich nicht lesen ({why}). Prüfen, ob die Datei noch da ist.</translation>
    </message>
    <message>
        <source>“{name}” could not be read to its end: {why}.</source>
        <translation>„{name}“ ließ sich nicht zu Ende lesen: {why}.</translation>
    </message>
</context>
</TS>
