<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de" sourcelanguage="en">
<context>
    <name>kvasir</name>
    <message>
        <source> % of free</source>
        <translation> % des freien</translation>
    </message>
    <message>
        <source>A shorter one needs less memory; some models can go beyond their own.</source>
        <translation>Ein kürzerer braucht weniger Speicher; manche Modelle können über ihren eigenen hinausgehen.</translation>
    </message>
    <message>
        <source>After the first answer of a chat the model is asked for a few words, while nothing else is. Small models (below half a billion parameters) are not: the first words of the chat stay its title.</source>
        <translation>Nach der ersten Antwort eines Chats wird das Modell um ein paar Wörter gebeten, während es sonst nichts zu tun hat. Kleine Modelle (unter einer halben Milliarde Parameter) nicht: Die ersten Wörter des Chats bleiben sein Titel.</translation>
    </message>
    <message>
        <source>All commands with their keys, which can be changed.</source>
        <translation>Alle Befehle mit ihren Tasten, die sich ändern lassen.</translation>
    </message>
    <message>
        <source>Appearance</source>
        <translation>Aussehen</translation>
    </message>
    <message>
        <source>Automatic takes 85 % of what is free.</source>
        <translation>Automatisch nimmt 85 % des freien Speichers.</translation>
    </message>
    <message>
        <source>Automatic takes a GPU where there is one, and of several the one with the most free memory.</source>
        <translation>Automatisch nimmt eine GPU, wo es eine gibt, und von mehreren die mit dem meisten freien Speicher.</translation>
    </message>
    <message>
        <source>Back to the usual value</source>
        <translation>Zurück zum üblichen Wert</translation>
    </message>
    <message>
        <source>Chats</source>
        <translation>Chats</translation>
    </message>
    <message>
        <source>Choose again in Settings.</source>
        <translation>In den Einstellungen neu wählen.</translation>
    </message>
    <message>
        <source>Choose…</source>
        <translation>Wählen…</translation>
    </message>
    <message>
        <source>Closing the window leaves Kvasir in the tray</source>
        <translation>Beim Schließen des Fensters bleibt Kvasir im Infobereich</translation>
    </message>
    <message>
        <source>Device</source>
        <translation>Gerät</translation>
    </message>
    <message>
        <source>Download speed limit</source>
        <translation>Tempolimit für Downloads</translation>
    </message>
    <message>
        <source>Engine</source>
        <translation>Engine</translation>
    </message>
    <message>
        <source>Files</source>
        <translation>Dateien</translation>
    </message>
    <message>
        <source>Find an embedding model…</source>
        <translation>Embedding-Modell suchen…</translation>
    </message>
    <message>
        <source>Frees its memory when nothing has been asked of it for so long. The next message loads it again.</source>
        <translation>Gibt seinen Speicher frei, wenn so lange nichts gefragt wurde. Die nächste Nachricht lädt es wieder.</translation>
    </message>
    <message>
        <source>Global shortcut of the quick chat</source>
        <translation>Globales Tastenkürzel des schnellen Chats</translation>
    </message>
    <message>
        <source>Hides the optimisations, the plots, the cache, the Lab and the server. What is set there stays in force.</source>
        <translation>Blendet Optimierungen, Diagramme, Cache, Labor und Server aus. Was dort eingestellt ist, gilt weiter.</translation>
    </message>
    <message>
        <source>Icon in the tray</source>
        <translation>Symbol im Infobereich</translation>
    </message>
    <message>
        <source>If the model comes with one.</source>
        <translation>Falls das Modell eines mitbringt.</translation>
    </message>
    <message>
        <source>In a document that does not fit the context, an embedding model finds passages that say in other words what is asked, besides the search for words. It runs on the processor, next to the chat&apos;s model, and is unloaded after five minutes. Nothing leaves this computer.</source>
        <translation>In einem Dokument, das nicht in den Kontext passt, findet ein Embedding-Modell neben der Wortsuche auch Abschnitte, die das Gefragte anders ausdrücken. Es läuft auf dem Prozessor neben dem Modell des Chats und wird nach fünf Minuten entladen. Nichts verlässt diesen Computer.</translation>
    </message>
    <message>
        <source>It was kept as {path}; the defaults are in force.</source>
        <translation>Sie bleibt als {path} erhalten; es gelten die Vorgaben.</translation>
    </message>
    <message>
        <source>Keyboard shortcuts</source>
        <translation>Tastenkürzel</translation>
    </message>
    <message>
        <source>Language</source>
        <translation>Sprache</translation>
    </message>
    <message>
        <source>Load the draft model too</source>
        <translation>Entwurfsmodell mitladen</translation>
    </message>
    <message>
        <source>Loads the present model again, with the settings above.</source>
        <translation>Lädt das aktuelle Modell neu, mit den Einstellungen darüber.</translation>
    </message>
    <message>
        <source>Log file</source>
        <translation>Protokolldatei</translation>
    </message>
    <message>
        <source>Longest context, tokens</source>
        <translation>Längster Kontext, Token</translation>
    </message>
    <message>
        <source>Memory for the engine</source>
        <translation>Speicher für die Engine</translation>
    </message>
    <message>
        <source>Memory for the engine,{unit}</source>
        <translation>Speicher für die Engine,{unit}</translation>
    </message>
    <message>
        <source>Model maximum</source>
        <translation>Höchstwert</translation>
    </message>
    <message>
        <source>Models</source>
        <translation>Modelle</translation>
    </message>
    <message>
        <source>Never</source>
        <translation>Nie</translation>
    </message>
    <message>
        <source>No limit</source>
        <translation>Kein Limit</translation>
    </message>
    <message>
        <source>No setting has these words. Try fewer or other words.</source>
        <translation>Keine Einstellung enthält diese Wörter. Weniger oder andere Wörter versuchen.</translation>
    </message>
    <message>
        <source>Notifications and tray</source>
        <translation>Benachrichtigungen und Infobereich</translation>
    </message>
    <message>
        <source>Notify</source>
        <translation>Benachrichtigen</translation>
    </message>
    <message>
        <source>Notify of answers that took longer than</source>
        <translation>Bei Antworten benachrichtigen, die länger dauerten als</translation>
    </message>
    <message>
        <source>Of an answer that took long, a download, or a model that was made, while the window is not in front.</source>
        <translation>Über eine Antwort, die lange dauerte, einen Download oder ein erstelltes Modell, wenn das Fenster nicht vorn ist.</translation>
    </message>
    <message>
        <source>Of every word in the window. {key} and the mouse wheel change it, too.</source>
        <translation>Aller Wörter im Fenster. Auch {key} und das Mausrad ändern sie.</translation>
    </message>
    <message>
        <source>Of the window, from its next start on. Error messages of the engine and the help stay English.</source>
        <translation>Des Fensters, ab dem nächsten Start. Fehlermeldungen der Engine und die Hilfe bleiben englisch.</translation>
    </message>
    <message>
        <source>Off</source>
        <translation>Aus</translation>
    </message>
    <message>
        <source>Off: no embedding model is here</source>
        <translation>Aus: kein Embedding-Modell da</translation>
    </message>
    <message>
        <source>Open folder</source>
        <translation>Ordner öffnen</translation>
    </message>
    <message>
        <source>Open the folder of: {what}</source>
        <translation>Ordner öffnen von: {what}</translation>
    </message>
    <message>
        <source>Opens a small window for a question, whichever window is in front.</source>
        <translation>Öffnet ein kleines Fenster für eine Frage, egal welches Fenster vorn ist.</translation>
    </message>
    <message>
        <source>Packs models that come in 16 or 32 bits a weight while they are loaded. Four bits (NF4, int4) take about a third of the memory and change the text a little; int8 takes half and changes it hardly.</source>
        <translation>Packt Modelle mit 16 oder 32 Bit je Gewicht beim Laden. Vier Bit (NF4, int4) brauchen etwa ein Drittel des Speichers und ändern den Text ein wenig; int8 braucht die Hälfte und ändert ihn kaum.</translation>
    </message>
    <message>
        <source>Passages by meaning</source>
        <translation>Abschnitte nach Bedeutung</translation>
    </message>
    <message>
        <source>Passages by meaning: {name}</source>
        <translation>Abschnitte nach Bedeutung: {name}</translation>
    </message>
    <message>
        <source>Per download. Running downloads use it after they are paused and resumed.</source>
        <translation>Je Download. Für laufende gilt es, nachdem sie angehalten und fortgesetzt wurden.</translation>
    </message>
    <message>
        <source>Quantise 16-bit models on load</source>
        <translation>16-Bit-Modelle beim Laden quantisieren</translation>
    </message>
    <message>
        <source>Quick chat</source>
        <translation>Schneller Chat</translation>
    </message>
    <message>
        <source>Reduced motion</source>
        <translation>Weniger Bewegung</translation>
    </message>
    <message>
        <source>Reload model</source>
        <translation>Modell neu laden</translation>
    </message>
    <message>
        <source>Reset</source>
        <translation>Zurücksetzen</translation>
    </message>
    <message>
        <source>Reset all</source>
        <translation>Alle zurücksetzen</translation>
    </message>
    <message>
        <source>Reset all settings</source>
        <translation>Alle Einstellungen zurücksetzen</translation>
    </message>
    <message>
        <source>Reset all…</source>
        <translation>Alle zurücksetzen…</translation>
    </message>
    <message>
        <source>Reset: {what}</source>
        <translation>Zurücksetzen: {what}</translation>
    </message>
    <message>
        <source>Search the settings</source>
        <translation>Einstellungen durchsuchen</translation>
    </message>
    <message>
        <source>Settings</source>
        <translation>Einstellungen</translation>
    </message>
    <message>
        <source>Show</source>
        <translation>Anzeigen</translation>
    </message>
    <message>
        <source>Show the log</source>
        <translation>Protokoll anzeigen</translation>
    </message>
    <message>
        <source>Shows or hides the window, begins a chat, quits.</source>
        <translation>Zeigt oder verbirgt das Fenster, beginnt einen Chat, beendet Kvasir.</translation>
    </message>
    <message>
        <source>Simple mode</source>
        <translation>Einfacher Modus</translation>
    </message>
    <message>
        <source>Switches and panels change without sliding.</source>
        <translation>Schalter und Leisten wechseln, ohne zu gleiten.</translation>
    </message>
    <message>
        <source>System</source>
        <translation>System</translation>
    </message>
    <message>
        <source>System follows the desktop, light or dark. High contrast is dark.</source>
        <translation>System folgt dem Desktop, hell oder dunkel. Hoher Kontrast ist dunkel.</translation>
    </message>
    <message>
        <source>Takes effect when a model is next loaded.</source>
        <translation>Wirkt, wenn das nächste Mal ein Modell geladen wird.</translation>
    </message>
    <message>
        <source>Text size</source>
        <translation>Textgröße</translation>
    </message>
    <message>
        <source>The command Quit ends it.</source>
        <translation>Der Befehl „Beenden“ beendet es.</translation>
    </message>
    <message>
        <source>The defaults are in force.</source>
        <translation>Es gelten die Vorgaben.</translation>
    </message>
    <message>
        <source>The engine found no such device.</source>
        <translation>Die Engine fand kein solches Gerät.</translation>
    </message>
    <message>
        <source>The engine found no {kind} device.</source>
        <translation>Die Engine fand kein {kind}-Gerät.</translation>
    </message>
    <message>
        <source>The file as it was is kept as {path}.</source>
        <translation>Die Datei, wie sie war, bleibt als {path} erhalten.</translation>
    </message>
    <message>
        <source>The file could not be copied ({why}).</source>
        <translation>Die Datei ließ sich nicht kopieren ({why}).</translation>
    </message>
    <message>
        <source>The settings could not be written to {path}: {why}. Free some space or allow writing there. Until then they hold only while Kvasir runs.</source>
        <translation>Die Einstellungen ließen sich nicht nach {path} schreiben: {why}. Platz schaffen oder das Schreiben dort erlauben. Bis dahin gelten sie nur, solange Kvasir läuft.</translation>
    </message>
    <message>
        <source>The settings file could not be read.</source>
        <translation>Die Einstellungsdatei ließ sich nicht lesen.</translation>
    </message>
    <message>
        <source>The settings file has a value that does not fit for {names}; the default is used.</source>
        <translation>Die Einstellungsdatei enthält einen unpassenden Wert für {names}; die Vorgabe gilt.</translation>
    </message>
    <message>
        <source>The settings of an earlier version could not be taken over ({why}); the defaults are in force. They will be kept as {path}. Choose again in Settings.</source>
        <translation>Die Einstellungen einer früheren Version ließen sich nicht übernehmen ({why}); es gelten die Vorgaben. Sie bleiben als {path} erhalten. In den Einstellungen neu wählen.</translation>
    </message>
    <message>
        <source>Theme</source>
        <translation>Farbschema</translation>
    </message>
    <message>
        <source>These get their usual values again: {settings}. Chats, models and presets stay.</source>
        <translation>Diese erhalten wieder ihre üblichen Werte: {settings}. Chats, Modelle und Voreinstellungen bleiben.</translation>
    </message>
    <message>
        <source>This desktop has no tray now.</source>
        <translation>Dieser Desktop hat derzeit keinen Infobereich.</translation>
    </message>
    <message>
        <source>Titles by the model</source>
        <translation>Titel vom Modell</translation>
    </message>
    <message>
        <source>Unload the model when idle</source>
        <translation>Modell bei Leerlauf entladen</translation>
    </message>
    <message>
        <source>Use them now</source>
        <translation>Jetzt anwenden</translation>
    </message>
    <message>
        <source>automatic</source>
        <translation>automatisch</translation>
    </message>
    <message>
        <source>dark</source>
        <translation>dunkel</translation>
    </message>
    <message>
        <source>fixed</source>
        <translation>fest</translation>
    </message>
    <message>
        <source>gpu pack cuda rocm nvidia amd graphics card</source>
        <translation>gpu pack gpu-paket cuda rocm nvidia amd grafikkarte</translation>
    </message>
    <message>
        <source>high contrast</source>
        <translation>hoher Kontrast</translation>
    </message>
    <message>
        <source>light</source>
        <translation>hell</translation>
    </message>
    <message>
        <source>off</source>
        <translation>aus</translation>
    </message>
    <message>
        <source>share</source>
        <translation>Anteil</translation>
    </message>
    <message>
        <source>system</source>
        <translation>System</translation>
    </message>
    <message>
        <source>{name} (not here)</source>
        <translation>{name} (nicht da)</translation>
    </message>
    <message>
        <source>{name}, {size}</source>
        <translation>{name}, {size}</translation>
    </message>
    <message numerus="yes">
        <source>{n} settings found.</source>
        <translation>
            <numerusform>{n} Einstellung gefunden.</numerusform>
            <numerusform>{n} Einstellungen gefunden.</numerusform>
        </translation>
    </message>
    <message>
        <source>{path} was written by a later version of Kvasir (settings {found}, and this is {known}). It is left as it is; this version reads and writes {name} next to it.</source>
        <translation>{path} stammt von einer späteren Version von Kvasir (Einstellungen {found}, hier {known}). Die Datei bleibt, wie sie ist; diese Version liest und schreibt {name} daneben.</translation>
    </message>
    <message>
        <source>{percent} % is the largest.</source>
        <translation>{percent} % ist am größten.</translation>
    </message>
    <message>
        <source>{percent} % is the smallest.</source>
        <translation>{percent} % ist am kleinsten.</translation>
    </message>
</context>
</TS>
