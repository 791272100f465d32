<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de" sourcelanguage="en">
<context>
    <name>kvasir</name>
    <message>
        <source>Language</source>
        <translation>Sprache</translation>
    </message>
    <message>
        <source>Of the window, from its next start on. Error messages of the engine and the help stay English.</source>
        <translation>Des Fensters, ab dem nächsten Start. Fehlermeldungen der Engine und die Hilfe bleiben englisch.</translation>
    </message>
    <message>
        <source>System</source>
        <translation>System</translation>
    </message>
</context>
</TS>
