<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de" sourcelanguage="en">
<context>
    <name>kvasir</name>
    <message>
        <source>A pack of an earlier version is in use. That of this version: {facts}</source>
        <translation>Ein Paket einer früheren Version ist in Gebrauch. Das dieser Version: {facts}</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>Abbrechen</translation>
    </message>
    <message>
        <source>Close</source>
        <translation>Schließen</translation>
    </message>
    <message>
        <source>Details</source>
        <translation>Details</translation>
    </message>
    <message>
        <source>Does not work</source>
        <translation>Funktioniert nicht</translation>
    </message>
    <message>
        <source>Folder</source>
        <translation>Ordner</translation>
    </message>
    <message>
        <source>GPU pack</source>
        <translation>GPU-Paket</translation>
    </message>
    <message>
        <source>Go on</source>
        <translation>Fortsetzen</translation>
    </message>
    <message>
        <source>In use</source>
        <translation>In Gebrauch</translation>
    </message>
    <message>
        <source>Install</source>
        <translation>Installieren</translation>
    </message>
    <message>
        <source>Install from a file…</source>
        <translation>Aus Datei installieren…</translation>
    </message>
    <message>
        <source>Installed, not in use</source>
        <translation>Installiert, nicht in Gebrauch</translation>
    </message>
    <message>
        <source>It goes to {folder} and nowhere else; chats, models and settings stay as they are. It can be stopped at any time and continues from there. Settings removes it again, and installs it from a file where there is no network.</source>
        <translation>Es liegt nur in {folder}; Chats, Modelle und Einstellungen bleiben, wie sie sind. Der Download lässt sich jederzeit anhalten und später fortsetzen. In den Einstellungen lässt sich das Paket wieder entfernen und, wo kein Netz ist, aus einer Datei installieren.</translation>
    </message>
    <message>
        <source>It needs {needed}, and {free} are free. Make room, then look again.</source>
        <translation>Es braucht {needed}, frei sind {free}. Erst Platz schaffen, dann erneut suchen.</translation>
    </message>
    <message>
        <source>Kvasir can be much faster on your {gpu}</source>
        <translation>Mit {gpu} kann Kvasir viel schneller sein</translation>
    </message>
    <message>
        <source>Kvasir now computes on {device}</source>
        <translation>Kvasir rechnet jetzt auf {device}</translation>
    </message>
    <message>
        <source>Later</source>
        <translation>Später</translation>
    </message>
    <message>
        <source>Look again</source>
        <translation>Erneut suchen</translation>
    </message>
    <message>
        <source>Looking for a GPU</source>
        <translation>Eine GPU wird gesucht</translation>
    </message>
    <message>
        <source>Make it fast</source>
        <translation>Beschleunigen</translation>
    </message>
    <message>
        <source>Making Kvasir fast</source>
        <translation>Kvasir wird beschleunigt</translation>
    </message>
    <message>
        <source>More</source>
        <translation>Mehr</translation>
    </message>
    <message>
        <source>No GPU was found that a pack would serve.</source>
        <translation>Es wurde keine GPU gefunden, für die es ein Paket gibt.</translation>
    </message>
    <message>
        <source>None</source>
        <comment>no GPU pack</comment>
        <translation>Keines</translation>
    </message>
    <message>
        <source>Not complete</source>
        <translation>Nicht vollständig</translation>
    </message>
    <message>
        <source>Not installed</source>
        <translation>Nicht installiert</translation>
    </message>
    <message>
        <source>Not known</source>
        <translation>Nicht bekannt</translation>
    </message>
    <message>
        <source>Not now</source>
        <translation>Nicht jetzt</translation>
    </message>
    <message>
        <source>Open folder</source>
        <translation>Ordner öffnen</translation>
    </message>
    <message>
        <source>Open the folder of the GPU pack</source>
        <translation>Den Ordner des GPU-Pakets öffnen</translation>
    </message>
    <message>
        <source>Packs of earlier versions</source>
        <translation>Pakete früherer Versionen</translation>
    </message>
    <message>
        <source>Pause</source>
        <translation>Anhalten</translation>
    </message>
    <message>
        <source>Progress of the GPU pack</source>
        <translation>Fortschritt des GPU-Pakets</translation>
    </message>
    <message>
        <source>Progress of the GPU pack, in Settings</source>
        <translation>Fortschritt des GPU-Pakets, in den Einstellungen</translation>
    </message>
    <message>
        <source>Remove the GPU pack ({size}), those of earlier versions too?</source>
        <translation>Das GPU-Paket ({size}) entfernen, auch die früherer Versionen?</translation>
    </message>
    <message>
        <source>Remove the GPU pack ({size})?</source>
        <translation>Das GPU-Paket ({size}) entfernen?</translation>
    </message>
    <message>
        <source>Remove the GPU packs of earlier versions</source>
        <translation>Die GPU-Pakete früherer Versionen entfernen</translation>
    </message>
    <message>
        <source>Remove them</source>
        <translation>Entfernen</translation>
    </message>
    <message>
        <source>Remove…</source>
        <translation>Entfernen…</translation>
    </message>
    <message>
        <source>Removing</source>
        <translation>Wird entfernt</translation>
    </message>
    <message>
        <source>Repair</source>
        <translation>Reparieren</translation>
    </message>
    <message>
        <source>Repairing the GPU pack</source>
        <translation>Das GPU-Paket wird repariert</translation>
    </message>
    <message>
        <source>Start it now</source>
        <translation>Jetzt starten</translation>
    </message>
    <message>
        <source>Starting</source>
        <translation>Beginnt</translation>
    </message>
    <message>
        <source>Stopped.</source>
        <translation>Gestoppt.</translation>
    </message>
    <message>
        <source>Stopped. {size} are still to download; what is there stays.</source>
        <translation>Gestoppt. {size} sind noch zu laden; was da ist, bleibt.</translation>
    </message>
    <message>
        <source>Test</source>
        <comment>the verb on a button</comment>
        <translation>Testen</translation>
    </message>
    <message>
        <source>Test it again</source>
        <translation>Erneut testen</translation>
    </message>
    <message>
        <source>Testing the GPU pack</source>
        <translation>Das GPU-Paket wird getestet</translation>
    </message>
    <message>
        <source>The GPU pack could not be installed</source>
        <translation>Das GPU-Paket ließ sich nicht installieren</translation>
    </message>
    <message>
        <source>The GPU pack could not be removed</source>
        <translation>Das GPU-Paket ließ sich nicht entfernen</translation>
    </message>
    <message>
        <source>The GPU pack could not be repaired</source>
        <translation>Das GPU-Paket ließ sich nicht reparieren</translation>
    </message>
    <message>
        <source>The GPU pack does not work</source>
        <translation>Das GPU-Paket funktioniert nicht</translation>
    </message>
    <message>
        <source>The GPU pack is not complete yet</source>
        <translation>Das GPU-Paket ist noch nicht vollständig</translation>
    </message>
    <message>
        <source>The GPU pack is not in use</source>
        <translation>Das GPU-Paket ist nicht in Gebrauch</translation>
    </message>
    <message>
        <source>The GPU pack is not installed yet</source>
        <translation>Das GPU-Paket ist noch nicht installiert</translation>
    </message>
    <message>
        <source>The GPU pack is not removed yet</source>
        <translation>Das GPU-Paket ist noch nicht entfernt</translation>
    </message>
    <message>
        <source>The GPU pack is not repaired yet</source>
        <translation>Das GPU-Paket ist noch nicht repariert</translation>
    </message>
    <message>
        <source>The GPU pack is not tested yet</source>
        <translation>Das GPU-Paket ist noch nicht getestet</translation>
    </message>
    <message>
        <source>The GPU pack&apos;s command</source>
        <translation>Der Befehl für GPU-Pakete</translation>
    </message>
    <message>
        <source>The GPU pack&apos;s command stopped (exit code 0).</source>
        <translation>Der Befehl für GPU-Pakete endete (Exit-Code 0).</translation>
    </message>
    <message>
        <source>The engine computes on the processor now. A GPU pack, downloaded once, lets it use the GPU.</source>
        <translation>Die Engine rechnet jetzt auf dem Prozessor. Mit einem GPU-Paket, einmal heruntergeladen, nutzt sie die GPU.</translation>
    </message>
    <message>
        <source>The engine is starting again</source>
        <translation>Die Engine startet neu</translation>
    </message>
    <message>
        <source>The engine starts again when the answer is finished</source>
        <translation>Die Engine startet neu, sobald die Antwort fertig ist</translation>
    </message>
    <message>
        <source>The engine then computes on the processor, more slowly. Chats, models and settings stay, and the pack can be downloaded again.</source>
        <translation>Die Engine rechnet dann auf dem Prozessor, langsamer. Chats, Modelle und Einstellungen bleiben, und das Paket lässt sich erneut herunterladen.</translation>
    </message>
    <message>
        <source>The packs of earlier versions are not removed yet</source>
        <translation>Die Pakete früherer Versionen sind noch nicht entfernt</translation>
    </message>
    <message>
        <source>The packs of earlier versions could not be removed</source>
        <translation>Die Pakete früherer Versionen ließen sich nicht entfernen</translation>
    </message>
    <message>
        <source>There is a newer one</source>
        <translation>Es gibt ein neueres</translation>
    </message>
    <message>
        <source>Try again</source>
        <translation>Erneut versuchen</translation>
    </message>
    <message>
        <source>checking</source>
        <translation>Prüfung</translation>
    </message>
    <message>
        <source>downloading</source>
        <translation>Download</translation>
    </message>
    <message>
        <source>driver {version}</source>
        <translation>Treiber {version}</translation>
    </message>
    <message>
        <source>installing</source>
        <translation>Installation</translation>
    </message>
    <message>
        <source>testing it on the GPU</source>
        <translation>Test auf der GPU</translation>
    </message>
    <message>
        <source>{doing}: {stage} ({place} of {count})</source>
        <translation>{doing}: {stage} ({place} von {count})</translation>
    </message>
    <message>
        <source>{done} of {total}</source>
        <translation>{done} von {total}</translation>
    </message>
    <message>
        <source>{duration} left</source>
        <translation>noch {duration}</translation>
    </message>
    <message>
        <source>{size} on the disk, where {free} are free</source>
        <translation>{size} auf der Platte, frei sind {free}</translation>
    </message>
    <message>
        <source>{size} to download</source>
        <translation>{size} zu laden</translation>
    </message>
</context>
</TS>
