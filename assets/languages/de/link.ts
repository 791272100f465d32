<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de" sourcelanguage="en">
<context>
    <name>kvasir</name>
    <message>
        <source>It is being started again.</source>
        <translation>Sie wird neu gestartet.</translation>
    </message>
    <message>
        <source>It was stopped before it began.</source>
        <translation>Vor dem Beginn abgebrochen.</translation>
    </message>
    <message>
        <source>Starting the engine.</source>
        <translation>Die Engine wird gestartet.</translation>
    </message>
    <message>
        <source>That is more than the {limit} MiB that the engine takes at once.</source>
        <translation>Das ist mehr als die {limit} MiB, die die Engine auf einmal annimmt.</translation>
    </message>
    <message>
        <source>The conversation is larger than the {limit} MiB that the engine takes. Shorten the message, or begin a new chat.</source>
        <translation>Das Gespräch ist größer als die {limit} MiB, die die Engine annimmt. Die Nachricht kürzen oder einen neuen Chat beginnen.</translation>
    </message>
    <message>
        <source>The engine could not be reached ({why}).</source>
        <translation>Die Engine ließ sich nicht erreichen ({why}).</translation>
    </message>
    <message>
        <source>The engine could not be started ({why}).</source>
        <translation>Die Engine ließ sich nicht starten ({why}).</translation>
    </message>
    <message>
        <source>The engine did not answer within {seconds:.0f} seconds.</source>
        <translation>Die Engine antwortete {seconds:.0f} Sekunden lang nicht.</translation>
    </message>
    <message>
        <source>The engine is not running yet. Wait until it has started, then try again.</source>
        <translation>Die Engine läuft noch nicht. Warten, bis sie gestartet ist, dann erneut versuchen.</translation>
    </message>
    <message>
        <source>The engine is not running. Wait until it has started, then try again.</source>
        <translation>Die Engine läuft nicht. Warten, bis sie gestartet ist, dann erneut versuchen.</translation>
    </message>
    <message>
        <source>The engine is ready.</source>
        <translation>Die Engine ist bereit.</translation>
    </message>
    <message>
        <source>The engine speaks protocol {engine} and the window {window}: install both from the same version of Kvasir.</source>
        <translation>Die Engine spricht Protokoll {engine} und das Fenster {window}: Beide aus derselben Version von Kvasir installieren.</translation>
    </message>
    <message>
        <source>The engine stopped ({how}).</source>
        <translation>Die Engine endete ({how}).</translation>
    </message>
    <message>
        <source>The engine stopped ({how}): {words}.</source>
        <translation>Die Engine endete ({how}): {words}.</translation>
    </message>
    <message>
        <source>The engine stopped answering.</source>
        <translation>Die Engine antwortet nicht mehr.</translation>
    </message>
    <message>
        <source>The engine stopped before it answered. Try again.</source>
        <translation>Die Engine endete, bevor sie antwortete. Erneut versuchen.</translation>
    </message>
    <message>
        <source>The engine&apos;s answer to {operation} was not understood. Install Kvasir again.</source>
        <translation>Die Antwort der Engine auf {operation} wurde nicht verstanden. Kvasir neu installieren.</translation>
    </message>
    <message>
        <source>exit code {code}</source>
        <translation>Exit-Code {code}</translation>
    </message>
    <message>
        <source>signal {name}</source>
        <translation>Signal {name}</translation>
    </message>
    <message>
        <source>the engine stopped while it was being set up with this</source>
        <translation>die Engine endete, während sie damit eingerichtet wurde</translation>
    </message>
    <message>
        <source>{sentence} It stopped {deaths} times in a row: see the log file, then choose “Start the engine”.</source>
        <translation>{sentence} Sie endete {deaths}-mal in Folge: in der Protokolldatei nachsehen, dann „Engine starten“ wählen.</translation>
    </message>
</context>
</TS>
