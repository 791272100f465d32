<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de" sourcelanguage="en">
<context>
    <name>kvasir</name>
    <message>
        <source>Another program has {keys}. Choose other keys.</source>
        <translation>Ein anderes Programm hat {keys}. Andere Tasten wählen.</translation>
    </message>
    <message>
        <source>Bind the command `kvasir --quick` to keys in the desktop&apos;s settings instead.</source>
        <translation>Stattdessen in den Einstellungen des Desktops den Befehl `kvasir --quick` auf Tasten legen.</translation>
    </message>
    <message>
        <source>Go on in the main window (Ctrl+Enter)</source>
        <translation>Im Hauptfenster fortsetzen (Strg+Enter)</translation>
    </message>
    <message>
        <source>Kvasir knows no way to keys of the whole desktop here.</source>
        <translation>Kvasir kennt hier keinen Weg zu Tasten des ganzen Desktops.</translation>
    </message>
    <message>
        <source>Message</source>
        <translation>Nachricht</translation>
    </message>
    <message>
        <source>New chat</source>
        <translation>Neuer Chat</translation>
    </message>
    <message>
        <source>Open in Kvasir</source>
        <translation>In Kvasir öffnen</translation>
    </message>
    <message>
        <source>Quick chat</source>
        <translation>Schneller Chat</translation>
    </message>
    <message>
        <source>Send</source>
        <translation>Senden</translation>
    </message>
    <message>
        <source>Stop</source>
        <translation>Stopp</translation>
    </message>
    <message>
        <source>The desktop did not give Kvasir the keys.</source>
        <translation>Der Desktop hat Kvasir die Tasten nicht gegeben.</translation>
    </message>
    <message>
        <source>The desktop has given Kvasir no keys yet: choose them in the desktop&apos;s settings.</source>
        <translation>Der Desktop hat Kvasir noch keine Tasten gegeben: Sie werden in dessen Einstellungen gewählt.</translation>
    </message>
    <message>
        <source>The desktop has given Kvasir these keys: {keys}.</source>
        <translation>Der Desktop hat Kvasir diese Tasten gegeben: {keys}.</translation>
    </message>
    <message>
        <source>The display lets Kvasir hold no keys.</source>
        <translation>Die Anzeige lässt Kvasir keine Tasten belegen.</translation>
    </message>
    <message>
        <source>This desktop gives programs no keys of their own.</source>
        <translation>Dieser Desktop gibt Programmen keine eigenen Tasten.</translation>
    </message>
    <message>
        <source>This keyboard has no {keys}. Choose other keys.</source>
        <translation>Diese Tastatur hat kein {keys}. Andere Tasten wählen.</translation>
    </message>
    <message>
        <source>{reason}. What you send now waits for it.</source>
        <translation>{reason}. Was Sie jetzt senden, wartet darauf.</translation>
    </message>
</context>
</TS>
