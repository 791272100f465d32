<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de" sourcelanguage="en">
<context>
    <name>kvasir</name>
    <message>
        <source>A model is here</source>
        <translation>Ein Modell ist da</translation>
    </message>
    <message>
        <source>A switch is being measured</source>
        <translation>Ein Schalter wird gemessen</translation>
    </message>
    <message>
        <source>A switch is being measured; an answer now spoils it.</source>
        <translation>Ein Schalter wird gemessen; eine Antwort würde das jetzt verfälschen.</translation>
    </message>
    <message>
        <source>An answer is being written</source>
        <translation>Eine Antwort wird geschrieben</translation>
    </message>
    <message>
        <source>An answer is finished</source>
        <translation>Eine Antwort ist fertig</translation>
    </message>
    <message>
        <source>Ask anyway</source>
        <translation>Trotzdem fragen</translation>
    </message>
    <message>
        <source>Ask something first: the cost is measured on what this chat holds.</source>
        <translation>Zuerst etwas fragen: Die Kosten werden am Inhalt dieses Chats gemessen.</translation>
    </message>
    <message>
        <source>Asking Hugging Face…</source>
        <translation>Hugging Face wird gefragt…</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>Abbrechen</translation>
    </message>
    <message>
        <source>Change it now</source>
        <translation>Jetzt ändern</translation>
    </message>
    <message>
        <source>Changing {title}</source>
        <translation>{title} zu ändern</translation>
    </message>
    <message>
        <source>Chat</source>
        <translation>Chat</translation>
    </message>
    <message>
        <source>Chat with it</source>
        <translation>Damit chatten</translation>
    </message>
    <message>
        <source>Downloading {name} failed</source>
        <translation>Download von {name} fehlgeschlagen</translation>
    </message>
    <message>
        <source>Downloads and quantising go on next time.</source>
        <translation>Downloads und Quantisierungen gehen beim nächsten Mal weiter.</translation>
    </message>
    <message>
        <source>GPU pack</source>
        <translation>GPU-Paket</translation>
    </message>
    <message>
        <source>Get</source>
        <translation>Holen</translation>
    </message>
    <message>
        <source>Get a model…</source>
        <translation>Modell holen…</translation>
    </message>
    <message>
        <source>Go to {page}</source>
        <translation>Gehe zu {page}</translation>
    </message>
    <message>
        <source>Help</source>
        <translation>Hilfe</translation>
    </message>
    <message>
        <source>Hide all but chats and models</source>
        <translation>Alles außer Chats und Modellen ausblenden</translation>
    </message>
    <message>
        <source>Install a GPU pack from a file</source>
        <translation>GPU-Paket aus einer Datei installieren</translation>
    </message>
    <message>
        <source>It is here.</source>
        <translation>Es ist da.</translation>
    </message>
    <message>
        <source>It is on screen.</source>
        <translation>Ist bereits zu sehen.</translation>
    </message>
    <message>
        <source>It is so now.</source>
        <translation>Ist bereits so.</translation>
    </message>
    <message>
        <source>Lab</source>
        <translation>Labor</translation>
    </message>
    <message>
        <source>Load a model first.</source>
        <translation>Zuerst ein Modell laden.</translation>
    </message>
    <message>
        <source>Models</source>
        <translation>Modelle</translation>
    </message>
    <message>
        <source>New chat</source>
        <translation>Neuer Chat</translation>
    </message>
    <message>
        <source>No model is here. Get one on the page Models, or open a file with the model menu.</source>
        <translation>Es ist kein Modell da. Auf der Seite „Modelle“ lässt sich eines herunterladen, im Modellmenü eine Datei öffnen.</translation>
    </message>
    <message>
        <source>No model is loaded. Choose one in the model menu, or get one on the page Models.</source>
        <translation>Es ist kein Modell geladen. Im Modellmenü eines wählen oder auf der Seite „Modelle“ eines herunterladen.</translation>
    </message>
    <message>
        <source>Off for this model; your choice is remembered: {choices}.</source>
        <translation>Bei diesem Modell aus; die Auswahl bleibt gemerkt: {choices}.</translation>
    </message>
    <message>
        <source>Open model</source>
        <translation>Modell öffnen</translation>
    </message>
    <message>
        <source>Optimisation</source>
        <translation>Optimierung</translation>
    </message>
    <message>
        <source>Page: {name}</source>
        <translation>Seite: {name}</translation>
    </message>
    <message>
        <source>Preset for this chat</source>
        <translation>Voreinstellung für diesen Chat</translation>
    </message>
    <message>
        <source>Quantising {name} failed</source>
        <translation>Quantisieren von {name} fehlgeschlagen</translation>
    </message>
    <message>
        <source>Quick chat</source>
        <translation>Schneller Chat</translation>
    </message>
    <message>
        <source>Quit</source>
        <translation>Beenden</translation>
    </message>
    <message>
        <source>Quit Kvasir</source>
        <translation>Kvasir beenden</translation>
    </message>
    <message>
        <source>Quit now</source>
        <translation>Jetzt beenden</translation>
    </message>
    <message>
        <source>Quitting ends all of that.</source>
        <translation>Das Beenden bricht all das ab.</translation>
    </message>
    <message>
        <source>Quitting ends that.</source>
        <translation>Das Beenden bricht das ab.</translation>
    </message>
    <message>
        <source>Remove</source>
        <translation>Entfernen</translation>
    </message>
    <message>
        <source>Resume</source>
        <translation>Fortsetzen</translation>
    </message>
    <message>
        <source>Search all chats</source>
        <translation>Alle Chats durchsuchen</translation>
    </message>
    <message>
        <source>Server</source>
        <translation>Server</translation>
    </message>
    <message>
        <source>Settings</source>
        <translation>Einstellungen</translation>
    </message>
    <message>
        <source>Show everything</source>
        <translation>Alles zeigen</translation>
    </message>
    <message>
        <source>Show or hide Kvasir</source>
        <translation>Kvasir ein- oder ausblenden</translation>
    </message>
    <message>
        <source>Show the cache: pages and prefix tree</source>
        <translation>Cache zeigen: Seiten und Präfixbaum</translation>
    </message>
    <message>
        <source>Show the list of chats</source>
        <translation>Liste der Chats zeigen</translation>
    </message>
    <message>
        <source>Show the optimisations</source>
        <translation>Optimierungen zeigen</translation>
    </message>
    <message>
        <source>Show the plots</source>
        <translation>Diagramme zeigen</translation>
    </message>
    <message>
        <source>Simple mode</source>
        <translation>Einfacher Modus</translation>
    </message>
    <message>
        <source>Simple mode hides that.</source>
        <translation>Der einfache Modus blendet das aus.</translation>
    </message>
    <message>
        <source>Simple mode is on: the optimisations, the plots, the cache, the Lab and the server are hidden.</source>
        <translation>Der einfache Modus ist an: Optimierungen, Diagramme, Cache, Labor und Server sind ausgeblendet.</translation>
    </message>
    <message>
        <source>Speculation is on: {drafter} drafts tokens for {name}.</source>
        <translation>Spekulation ist an: {drafter} entwirft Token für {name}.</translation>
    </message>
    <message>
        <source>Steps are captured without it: {reason}.</source>
        <translation>Schritte werden ohne ihn aufgezeichnet: {reason}.</translation>
    </message>
    <message>
        <source>Text size</source>
        <translation>Textgröße</translation>
    </message>
    <message>
        <source>The Lab is measuring</source>
        <translation>Das Labor misst</translation>
    </message>
    <message>
        <source>The engine is not running.</source>
        <translation>Die Engine läuft nicht.</translation>
    </message>
    <message>
        <source>The engine of the GPU pack stopped again and again, so the processor computes now. Repair the pack, or look into the log file for the reason.</source>
        <translation>Die Engine des GPU-Pakets brach immer wieder ab, darum rechnet jetzt der Prozessor. Das Paket reparieren oder den Grund in der Protokolldatei nachsehen.</translation>
    </message>
    <message>
        <source>The model that comes with Kvasir is tiny and knows only its manual: what it says about documents is often wrong. Another model reads them better.</source>
        <translation>Das mitgelieferte Modell ist winzig und kennt nur sein Handbuch: Was es über Dokumente sagt, ist oft falsch. Ein anderes Modell liest sie besser.</translation>
    </message>
    <message>
        <source>The others: {reason}.</source>
        <translation>Die übrigen: {reason}.</translation>
    </message>
    <message>
        <source>The pack is installed, but the engine computes on the processor. Test the pack in Settings to see why.</source>
        <translation>Das Paket ist installiert, aber die Engine rechnet auf dem Prozessor. Ein Test des Pakets in den Einstellungen zeigt den Grund.</translation>
    </message>
    <message>
        <source>The tools that this chat had were not kept: it is measured without any.</source>
        <translation>Die Werkzeuge dieses Chats wurden nicht aufbewahrt: Gemessen wird ohne.</translation>
    </message>
    <message>
        <source>The window is too low for that now.</source>
        <translation>Das Fenster ist dafür gerade zu niedrig.</translation>
    </message>
    <message>
        <source>Theme</source>
        <translation>Farbschema</translation>
    </message>
    <message>
        <source>This chat has no answer yet.</source>
        <translation>Dieser Chat hat noch keine Antwort.</translation>
    </message>
    <message>
        <source>Undo</source>
        <translation>Rückgängig</translation>
    </message>
    <message>
        <source>Wait</source>
        <translation>Warten</translation>
    </message>
    <message>
        <source>model loaded</source>
        <translation>Modell geladen</translation>
    </message>
    <message>
        <source>not in force</source>
        <translation>nicht in Kraft</translation>
    </message>
    <message>
        <source>{name} is here.</source>
        <translation>{name} ist da.</translation>
    </message>
    <message>
        <source>{path} is not there any more.</source>
        <translation>{path} ist nicht mehr da.</translation>
    </message>
    <message>
        <source>{share:.0f} % of steps</source>
        <translation>{share:.0f} % der Schritte</translation>
    </message>
    <message>
        <source>{size} RAM</source>
        <translation>{size} RAM</translation>
    </message>
    <message>
        <source>{size} memory</source>
        <translation>{size} Speicher</translation>
    </message>
</context>
</TS>
