<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de" sourcelanguage="en">
<context>
    <name>kvasir</name>
    <message>
        <source>Close the notice</source>
        <translation>Hinweis schließen</translation>
    </message>
    <message>
        <source>Keys of “{command}”: {keys}</source>
        <translation>Tasten von „{command}“: {keys}</translation>
    </message>
    <message>
        <source>New keys of “{command}”</source>
        <translation>Neue Tasten von „{command}“</translation>
    </message>
    <message>
        <source>None</source>
        <comment>no keys</comment>
        <translation>Keine</translation>
    </message>
    <message>
        <source>Only a single combination of keys can be used.</source>
        <translation>Nur eine einzelne Tastenkombination ist möglich.</translation>
    </message>
    <message>
        <source>Press the new keys. Backspace takes them away, Esc leaves them as they are.</source>
        <translation>Die neuen Tasten drücken. Die Rücktaste entfernt sie, Esc lässt sie, wie sie sind.</translation>
    </message>
    <message>
        <source>What to do</source>
        <translation>Was zu tun ist</translation>
    </message>
    <message>
        <source>{keys} alone is needed for typing. Hold {ctrl} or {alt} as well, or use a function key.</source>
        <translation>{keys} allein wird zum Schreiben gebraucht. {ctrl} oder {alt} dazu halten oder eine Funktionstaste nehmen.</translation>
    </message>
    <message>
        <source>{keys} chooses the whole text in every field.</source>
        <translation>{keys} wählt in jedem Feld den ganzen Text aus.</translation>
    </message>
    <message>
        <source>{keys} copies text in every field.</source>
        <translation>{keys} kopiert in jedem Feld Text.</translation>
    </message>
    <message>
        <source>{keys} cuts text out in every field.</source>
        <translation>{keys} schneidet in jedem Feld Text aus.</translation>
    </message>
    <message>
        <source>{keys} deletes text in every field.</source>
        <translation>{keys} löscht in jedem Feld Text.</translation>
    </message>
    <message>
        <source>{keys} does again what was undone in every field.</source>
        <translation>{keys} stellt in jedem Feld wieder her, was rückgängig gemacht wurde.</translation>
    </message>
    <message>
        <source>{keys} moves the text cursor in every field.</source>
        <translation>{keys} bewegt in jedem Feld die Textmarke.</translation>
    </message>
    <message>
        <source>{keys} pastes in every field.</source>
        <translation>{keys} fügt in jedem Feld ein.</translation>
    </message>
    <message>
        <source>{keys} undoes what was typed in every field.</source>
        <translation>{keys} macht in jedem Feld das Getippte rückgängig.</translation>
    </message>
</context>
</TS>
