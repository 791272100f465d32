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
        <source>Go on in the main window ({keys})</source>
        <translation>Im Hauptfenster fortsetzen ({keys})</translation>
    </message>
    <message>
        <source>Kvasir cannot reach the display to set a global shortcut.</source>
        <translation>Kvasir erreicht die Anzeige nicht, um ein globales Tastenkürzel zu belegen.</translation>
    </message>
    <message>
        <source>Kvasir cannot set a global shortcut on this system.</source>
        <translation>Kvasir kann auf diesem System kein globales Tastenkürzel belegen.</translation>
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
        <source>Set a shortcut for the command `kvasir --quick` in the desktop&apos;s settings instead.</source>
        <translation>Stattdessen in den Einstellungen des Desktops dem Befehl `kvasir --quick` ein Tastenkürzel geben.</translation>
    </message>
    <message>
        <source>The desktop did not give Kvasir the shortcut.</source>
        <translation>Der Desktop hat Kvasir das Tastenkürzel nicht gegeben.</translation>
    </message>
    <message>
        <source>The desktop gives a global shortcut to programs of its menu alone. Run `kvasir desktop install`, then start Kvasir again.</source>
        <translation>Der Desktop gibt globale Tastenkürzel nur Programmen seines Menüs. `kvasir desktop install` ausführen und Kvasir dann neu starten.</translation>
    </message>
    <message>
        <source>The desktop has given Kvasir this shortcut: {keys}.</source>
        <translation>Der Desktop hat Kvasir dieses Tastenkürzel gegeben: {keys}.</translation>
    </message>
    <message>
        <source>This desktop lets programs set no global shortcut.</source>
        <translation>Dieser Desktop lässt Programme kein globales Tastenkürzel belegen.</translation>
    </message>
    <message>
        <source>The desktop has given Kvasir no keys yet: choose them in the desktop&apos;s settings.</source>
        <translation>Der Desktop hat Kvasir noch keine Tasten gegeben: Sie werden in dessen Einstellungen gewählt.</translation>
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
