<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de" sourcelanguage="en">
<context>
    <name>kvasir</name>
    <message>
        <source>About Kvasir</source>
        <translation>Über Kvasir</translation>
    </message>
    <message>
        <source>About Kvasir, and licences</source>
        <translation>Über Kvasir und Lizenzen</translation>
    </message>
    <message>
        <source>About and licences</source>
        <translation>Info und Lizenzen</translation>
    </message>
    <message>
        <source>Choose one to read where it comes from and under which terms.</source>
        <translation>Einen wählen, um zu lesen, woher er kommt und welche Bedingungen gelten.</translation>
    </message>
    <message>
        <source>Copy</source>
        <translation>Kopieren</translation>
    </message>
    <message>
        <source>Copy the lines on show</source>
        <translation>Gezeigte Zeilen kopieren</translation>
    </message>
    <message>
        <source>Help text</source>
        <translation>Hilfetext</translation>
    </message>
    <message>
        <source>Help topics</source>
        <translation>Hilfethemen</translation>
    </message>
    <message>
        <source>It is at {address}.</source>
        <translation>Er steht unter {address}.</translation>
    </message>
    <message>
        <source>Its licence&apos;s text did not come with it.</source>
        <translation>Der Text seiner Lizenz lag nicht bei.</translation>
    </message>
    <message>
        <source>Keyboard shortcuts</source>
        <translation>Tastenkürzel</translation>
    </message>
    <message>
        <source>Keys and passwords are hidden.</source>
        <translation>Schlüssel und Passwörter sind verborgen.</translation>
    </message>
    <message>
        <source>Level</source>
        <translation>Stufe</translation>
    </message>
    <message>
        <source>Licence not named</source>
        <translation>Lizenz nicht genannt</translation>
    </message>
    <message>
        <source>Lines of the log</source>
        <translation>Zeilen des Protokolls</translation>
    </message>
    <message>
        <source>Log</source>
        <translation>Protokoll</translation>
    </message>
    <message>
        <source>Made of {n} parts by many people.</source>
        <translation>Aus {n} Teilen von vielen Menschen gemacht.</translation>
    </message>
    <message>
        <source>No line of the log has that level, source and words.</source>
        <translation>Keine Zeile des Protokolls hat diese Stufe, Quelle und Wörter.</translation>
    </message>
    <message>
        <source>No part has these words in its name or licence.</source>
        <translation>Kein Teil hat diese Wörter in Namen oder Lizenz.</translation>
    </message>
    <message>
        <source>Nothing in the help has these words. Try fewer or other words.</source>
        <translation>Nichts in der Hilfe enthält diese Wörter. Weniger oder andere (englische) Wörter versuchen.</translation>
    </message>
    <message>
        <source>Parts that Kvasir is made of</source>
        <translation>Teile, aus denen Kvasir besteht</translation>
    </message>
    <message>
        <source>Search by name or licence</source>
        <translation>Nach Name oder Lizenz suchen</translation>
    </message>
    <message>
        <source>Search the help</source>
        <translation>Hilfe durchsuchen</translation>
    </message>
    <message>
        <source>Search the licences</source>
        <translation>Lizenzen durchsuchen</translation>
    </message>
    <message>
        <source>Search the log</source>
        <translation>Protokoll durchsuchen</translation>
    </message>
    <message>
        <source>Show in folder</source>
        <translation>Im Ordner zeigen</translation>
    </message>
    <message>
        <source>Text of the licence</source>
        <translation>Text der Lizenz</translation>
    </message>
    <message>
        <source>The help texts are not at {folder}. Install Kvasir again.</source>
        <translation>Die Hilfetexte fehlen in {folder}. Kvasir neu installieren.</translation>
    </message>
    <message>
        <source>The list of licences in {folder} cannot be read ({why}). Install Kvasir again.</source>
        <translation>Die Liste der Lizenzen in {folder} lässt sich nicht lesen ({why}). Kvasir neu installieren.</translation>
    </message>
    <message>
        <source>The log is empty.</source>
        <translation>Das Protokoll ist leer.</translation>
    </message>
    <message>
        <source>The pages of the help are in English.</source>
        <translation>Die Seiten der Hilfe gibt es nur auf Englisch.</translation>
    </message>
    <message>
        <source>There is no log at {path} yet.</source>
        <translation>In {path} gibt es noch kein Protokoll.</translation>
    </message>
    <message>
        <source>This text could not be read ({why}).</source>
        <translation>Dieser Text ließ sich nicht lesen ({why}).</translation>
    </message>
    <message>
        <source>Version {version}</source>
        <translation>Version {version}</translation>
    </message>
    <message>
        <source>Written by</source>
        <translation>Geschrieben von</translation>
    </message>
    <message>
        <source>engine</source>
        <translation>Engine</translation>
    </message>
    <message>
        <source>errors</source>
        <translation>Fehler</translation>
    </message>
    <message>
        <source>every level</source>
        <translation>alle Stufen</translation>
    </message>
    <message>
        <source>everything</source>
        <translation>alles</translation>
    </message>
    <message>
        <source>warnings</source>
        <translation>Warnungen</translation>
    </message>
    <message>
        <source>window</source>
        <translation>Fenster</translation>
    </message>
    <message>
        <source>{path} cannot be read ({why}).</source>
        <translation>{path} lässt sich nicht lesen ({why}).</translation>
    </message>
</context>
</TS>
