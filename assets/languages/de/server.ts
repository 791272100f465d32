<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de" sourcelanguage="en">
<context>
    <name>kvasir</name>
    <message>
        <source>A program sends a key with each request. A key allows requests only; it changes no settings, models or chats.</source>
        <translation>Ein Programm sendet bei jeder Anfrage einen Schlüssel. Er erlaubt nur Anfragen und ändert keine Einstellungen, Modelle oder Chats.</translation>
    </message>
    <message>
        <source>Connect a program</source>
        <translation>Programm verbinden</translation>
    </message>
    <message>
        <source>Copied</source>
        <translation>Kopiert</translation>
    </message>
    <message>
        <source>Copy</source>
        <translation>Kopieren</translation>
    </message>
    <message>
        <source>Copy it now: it is not shown again, only its hash is kept. The configurations below have it meanwhile.</source>
        <translation>Jetzt kopieren: Er wird nicht wieder angezeigt, nur sein Hash bleibt. Die Konfigurationen unten enthalten ihn solange.</translation>
    </message>
    <message>
        <source>Copy the address</source>
        <translation>Die Adresse kopieren</translation>
    </message>
    <message>
        <source>Copy the new key</source>
        <translation>Den neuen Schlüssel kopieren</translation>
    </message>
    <message>
        <source>Copy: {place}</source>
        <translation>Kopieren: {place}</translation>
    </message>
    <message>
        <source>Done</source>
        <translation>Fertig</translation>
    </message>
    <message>
        <source>From</source>
        <translation>Von</translation>
    </message>
    <message>
        <source>Hide the new key</source>
        <translation>Den neuen Schlüssel verbergen</translation>
    </message>
    <message>
        <source>In Cline&apos;s settings</source>
        <translation>In Clines Einstellungen</translation>
    </message>
    <message>
        <source>In Python</source>
        <translation>In Python</translation>
    </message>
    <message>
        <source>In Zed&apos;s settings.json</source>
        <translation>In Zeds settings.json</translation>
    </message>
    <message>
        <source>In a terminal</source>
        <translation>In einem Terminal</translation>
    </message>
    <message>
        <source>In opencode.json of a project, or ~/.config/opencode/opencode.json</source>
        <translation>In opencode.json eines Projekts oder ~/.config/opencode/opencode.json</translation>
    </message>
    <message>
        <source>In {file}</source>
        <translation>In {file}</translation>
    </message>
    <message>
        <source>Instead of the variable, its settings take the key too (LLM Providers, Kvasir).</source>
        <translation>Statt der Variablen nehmen auch seine Einstellungen den Schlüssel (LLM Providers, Kvasir).</translation>
    </message>
    <message>
        <source>It asks through /v1/responses alone. Its tools and prompt have some {tokens:,} tokens.</source>
        <translation>Es fragt nur über /v1/responses. Seine Werkzeuge und sein Prompt haben etwa {tokens:,} Token.</translation>
    </message>
    <message>
        <source>It opens as soon as the engine runs.</source>
        <translation>Öffnet sich, sobald die Engine läuft.</translation>
    </message>
    <message>
        <source>Its first prompt has some {tokens:,} tokens: the model&apos;s context has to be longer.</source>
        <translation>Sein erster Prompt hat etwa {tokens:,} Token: Der Kontext des Modells muss länger sein.</translation>
    </message>
    <message>
        <source>Key</source>
        <translation>Schlüssel</translation>
    </message>
    <message>
        <source>Keys</source>
        <translation>Schlüssel</translation>
    </message>
    <message>
        <source>Make a key</source>
        <translation>Schlüssel erstellen</translation>
    </message>
    <message>
        <source>Model</source>
        <translation>Modell</translation>
    </message>
    <message>
        <source>Name of a new key</source>
        <translation>Name eines neuen Schlüssels</translation>
    </message>
    <message>
        <source>Name of the program, e.g. zed</source>
        <translation>Name des Programms, z. B. zed</translation>
    </message>
    <message>
        <source>No key yet.</source>
        <translation>Noch kein Schlüssel.</translation>
    </message>
    <message>
        <source>No request yet.</source>
        <translation>Noch keine Anfrage.</translation>
    </message>
    <message>
        <source>Now: {connections}, {requests} in progress.</source>
        <translation>Jetzt: {connections}, {requests} in Arbeit.</translation>
    </message>
    <message>
        <source>Off: no other program reaches the engine of this window.</source>
        <translation>Aus: Kein anderes Programm erreicht die Engine dieses Fensters.</translation>
    </message>
    <message>
        <source>Once it has run, connections are changed in its settings (Admin Panel, Connections). A container does not reach this address; see “Web pages and containers” in Help.</source>
        <translation>Nach dem ersten Start werden Verbindungen in seinen Einstellungen geändert (Admin Panel, Connections). Ein Container erreicht diese Adresse nicht; siehe „Web pages and containers“ in der Hilfe.</translation>
    </message>
    <message>
        <source>Opening port {port}…</source>
        <translation>Port {port} wird geöffnet…</translation>
    </message>
    <message>
        <source>Port</source>
        <translation>Port</translation>
    </message>
    <message>
        <source>Program to connect</source>
        <translation>Zu verbindendes Programm</translation>
    </message>
    <message>
        <source>Programs on this computer can use the loaded model over HTTP, through the interfaces of OpenAI, Anthropic and Ollama. For other machines start kvasir serve.</source>
        <translation>Programme auf diesem Computer können das geladene Modell über HTTP nutzen, mit den Schnittstellen von OpenAI, Anthropic und Ollama. Für andere Computer dient kvasir serve.</translation>
    </message>
    <message>
        <source>Request</source>
        <translation>Anfrage</translation>
    </message>
    <message>
        <source>Requests</source>
        <translation>Anfragen</translation>
    </message>
    <message>
        <source>Revoke</source>
        <translation>Widerrufen</translation>
    </message>
    <message>
        <source>Revoke a key</source>
        <translation>Schlüssel widerrufen</translation>
    </message>
    <message>
        <source>Revoke the key {name}</source>
        <translation>Den Schlüssel {name} widerrufen</translation>
    </message>
    <message>
        <source>Revoke the key {name}? Programs that use it are refused from their next request on.</source>
        <translation>Den Schlüssel {name} widerrufen? Programme, die ihn nutzen, werden ab der nächsten Anfrage abgewiesen.</translation>
    </message>
    <message>
        <source>Revoke…</source>
        <translation>Widerrufen…</translation>
    </message>
    <message>
        <source>Seconds</source>
        <comment>the title of a narrow column</comment>
        <translation>Sek.</translation>
    </message>
    <message>
        <source>Serve other programs</source>
        <translation>Andere Programme bedienen</translation>
    </message>
    <message>
        <source>Server</source>
        <translation>Server</translation>
    </message>
    <message>
        <source>Since the engine&apos;s start: {requests}, {read:,} tokens read, {written:,} written.</source>
        <translation>Seit dem Start der Engine: {requests}, {read:,} Token gelesen, {written:,} geschrieben.</translation>
    </message>
    <message>
        <source>Status</source>
        <translation>Status</translation>
    </message>
    <message>
        <source>The key {name}</source>
        <translation>Der Schlüssel {name}</translation>
    </message>
    <message>
        <source>The new key</source>
        <translation>Der neue Schlüssel</translation>
    </message>
    <message>
        <source>Time</source>
        <translation>Zeit</translation>
    </message>
    <message>
        <source>Tokens</source>
        <translation>Token</translation>
    </message>
    <message>
        <source>Tokens of the prompt and of the answer</source>
        <translation>Token des Prompts und der Antwort</translation>
    </message>
    <message>
        <source>broken off</source>
        <translation>abgebrochen</translation>
    </message>
    <message>
        <source>expired {day}</source>
        <translation>abgelaufen {day}</translation>
    </message>
    <message>
        <source>expires {day}</source>
        <translation>läuft ab {day}</translation>
    </message>
    <message>
        <source>made {day}</source>
        <translation>erstellt {day}</translation>
    </message>
    <message>
        <source>none</source>
        <comment>no key</comment>
        <translation>keiner</translation>
    </message>
    <message>
        <source>running</source>
        <translation>läuft</translation>
    </message>
    <message>
        <source>{connections} open, no request yet.</source>
        <translation>{connections} offen, noch keine Anfrage.</translation>
    </message>
    <message>
        <source>{count:,} at once</source>
        <translation>{count:,} zugleich</translation>
    </message>
    <message numerus="yes">
        <source>{n:,} connections</source>
        <translation>
            <numerusform>1 Verbindung</numerusform>
            <numerusform>{n:,} Verbindungen</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n:,} requests</source>
        <translation>
            <numerusform>1 Anfrage</numerusform>
            <numerusform>{n:,} Anfragen</numerusform>
        </translation>
    </message>
    <message>
        <source>{rate:,} requests a minute</source>
        <translation>{rate:,} Anfragen je Minute</translation>
    </message>
</context>
</TS>
