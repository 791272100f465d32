<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de" sourcelanguage="en">
<context>
    <name>kvasir</name>
    <message>
        <source>All commands get their usual keys again. The keys that you chose are forgotten.</source>
        <translation>Alle Befehle erhalten wieder ihre üblichen Tasten. Die selbst gewählten werden vergessen.</translation>
    </message>
    <message>
        <source>Back to no keys</source>
        <translation>Zurück zu keinen Tasten</translation>
    </message>
    <message>
        <source>Back to {keys}</source>
        <translation>Zurück zu {keys}</translation>
    </message>
    <message>
        <source>Click the keys of a command to choose others.</source>
        <translation>Zum Ändern auf die Tasten eines Befehls klicken.</translation>
    </message>
    <message>
        <source>Commands</source>
        <translation>Befehle</translation>
    </message>
    <message>
        <source>Commands found</source>
        <translation>Gefundene Befehle</translation>
    </message>
    <message>
        <source>Find a command</source>
        <translation>Befehl suchen</translation>
    </message>
    <message>
        <source>Find a command, a chat or a model</source>
        <translation>Befehl, Chat oder Modell suchen</translation>
    </message>
    <message>
        <source>Keyboard shortcuts</source>
        <translation>Tastenkürzel</translation>
    </message>
    <message>
        <source>No command, chat or model has these letters. Try fewer of them.</source>
        <translation>Kein Befehl, Chat oder Modell hat diese Buchstaben. Weniger davon versuchen.</translation>
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
        <source>Reset all…</source>
        <translation>Alle zurücksetzen…</translation>
    </message>
    <message>
        <source>Reset: {what}</source>
        <translation>Zurücksetzen: {what}</translation>
    </message>
    <message>
        <source>Swap</source>
        <translation>Tauschen</translation>
    </message>
    <message>
        <source>Swap: “{command}” gets {keys}, and that one gets {others}.</source>
        <translation>Tauschen: „{command}“ erhält {keys}, der andere {others}.</translation>
    </message>
    <message>
        <source>Swap: “{command}” gets {keys}, and that one is then without keys.</source>
        <translation>Tauschen: „{command}“ erhält {keys}, der andere hat dann keine Tasten.</translation>
    </message>
    <message>
        <source>These keys cannot be changed.</source>
        <translation>Diese Tasten lassen sich nicht ändern.</translation>
    </message>
    <message>
        <source>{keys} is “{command}” and cannot be changed.</source>
        <translation>{keys} ist „{command}“ und lässt sich nicht ändern.</translation>
    </message>
    <message>
        <source>{keys} is “{command}”.</source>
        <translation>{keys} ist „{command}“.</translation>
    </message>
</context>
</TS>
