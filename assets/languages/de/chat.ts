<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de" sourcelanguage="en">
<context>
    <name>kvasir</name>
    <message>
        <source>(no text)</source>
        <translation>(kein Text)</translation>
    </message>
    <message>
        <source>0 always takes the most likely token; higher is more varied.</source>
        <translation>0 nimmt immer das wahrscheinlichste Token; höher ist abwechslungsreicher.</translation>
    </message>
    <message>
        <source>A document is being read. Then the message can be sent.</source>
        <translation>Ein Dokument wird gelesen. Danach kann die Nachricht gesendet werden.</translation>
    </message>
    <message>
        <source>A folder can have {most} documents, and this one would have {many}.</source>
        <translation>Ein Ordner kann {most} Dokumente haben, und dieser hätte {many}.</translation>
    </message>
    <message>
        <source>A message can have {most} documents, and this one has them.</source>
        <translation>Eine Nachricht kann {most} Dokumente haben, und diese hat sie schon.</translation>
    </message>
    <message>
        <source>A message can have {most} documents, and this one would have {many}.</source>
        <translation>Eine Nachricht kann {most} Dokumente haben, und diese hätte {many}.</translation>
    </message>
    <message>
        <source>A message can have {most} pictures, and this one would have {many}.</source>
        <translation>Eine Nachricht kann {most} Bilder haben, und diese hätte {many}.</translation>
    </message>
    <message>
        <source>A model is being loaded.</source>
        <translation>Ein Modell wird geladen.</translation>
    </message>
    <message>
        <source>A picture</source>
        <translation>Ein Bild</translation>
    </message>
    <message>
        <source>A picture that cannot be shown</source>
        <translation>Ein Bild, das sich nicht anzeigen lässt</translation>
    </message>
    <message>
        <source>A preset needs a name.</source>
        <translation>Eine Voreinstellung braucht einen Namen.</translation>
    </message>
    <message>
        <source>A system prompt and sampling under a name, for any chat</source>
        <translation>Systemprompt und Sampling unter einem Namen, für jeden Chat</translation>
    </message>
    <message>
        <source>Above 1, tokens of prompt and answer become less likely.</source>
        <translation>Über 1 werden Token aus Prompt und Antwort unwahrscheinlicher.</translation>
    </message>
    <message>
        <source>Adapter</source>
        <translation>Adapter</translation>
    </message>
    <message>
        <source>Adapter: {name}</source>
        <translation>Adapter: {name}</translation>
    </message>
    <message>
        <source>Add</source>
        <translation>Hinzufügen</translation>
    </message>
    <message>
        <source>Add a server</source>
        <translation>Server hinzufügen</translation>
    </message>
    <message>
        <source>Add documents</source>
        <translation>Dokumente hinzufügen</translation>
    </message>
    <message>
        <source>Add documents or pictures</source>
        <translation>Dokumente oder Bilder hinzufügen</translation>
    </message>
    <message>
        <source>Add documents or pictures: choose files, drop them here, or paste</source>
        <translation>Dokumente oder Bilder hinzufügen: Dateien wählen, hierher ziehen oder einfügen</translation>
    </message>
    <message>
        <source>Add documents: choose files, drop them here, or paste</source>
        <translation>Dokumente hinzufügen: Dateien wählen, hierher ziehen oder einfügen</translation>
    </message>
    <message>
        <source>Adding it…</source>
        <translation>Wird hinzugefügt…</translation>
    </message>
    <message>
        <source>Address of the link</source>
        <translation>Adresse des Links</translation>
    </message>
    <message>
        <source>Add…</source>
        <translation>Hinzufügen…</translation>
    </message>
    <message>
        <source>All files (*)</source>
        <translation>Alle Dateien (*)</translation>
    </message>
    <message>
        <source>All recommended models</source>
        <translation>Alle empfohlenen Modelle</translation>
    </message>
    <message>
        <source>All versions in this chat, as a list</source>
        <translation>Alle Fassungen in diesem Chat, als Liste</translation>
    </message>
    <message>
        <source>Allow once</source>
        <translation>Einmal erlauben</translation>
    </message>
    <message>
        <source>Always</source>
        <translation>Immer</translation>
    </message>
    <message>
        <source>Always allow</source>
        <translation>Immer erlauben</translation>
    </message>
    <message>
        <source>An answer is text alone: it can have no pictures.</source>
        <translation>Eine Antwort besteht nur aus Text, ohne Bilder.</translation>
    </message>
    <message>
        <source>An answer of {model} cannot go on: {server} may begin a new one instead. Choose a model of this computer to continue.</source>
        <translation>Eine Antwort von {model} kann nicht fortgesetzt werden: {server} beginnt womöglich eine neue. Zum Fortsetzen ein Modell dieses Computers wählen.</translation>
    </message>
    <message>
        <source>Another answer, drawn with a new seed</source>
        <translation>Eine andere Antwort, mit neuem Startwert</translation>
    </message>
    <message>
        <source>Another seed</source>
        <translation>Anderer Startwert</translation>
    </message>
    <message>
        <source>Another temperature</source>
        <translation>Andere Temperatur</translation>
    </message>
    <message>
        <source>Answer</source>
        <translation>Antwort</translation>
    </message>
    <message>
        <source>Answer {number}</source>
        <translation>Antwort {number}</translation>
    </message>
    <message>
        <source>Answer: {heading}</source>
        <translation>Antwort: {heading}</translation>
    </message>
    <message>
        <source>Answers side by side call no tools.</source>
        <translation>Antworten nebeneinander rufen keine Werkzeuge auf.</translation>
    </message>
    <message>
        <source>Arguments</source>
        <translation>Argumente</translation>
    </message>
    <message>
        <source>As comma-separated values, for a spreadsheet</source>
        <translation>Als kommagetrennte Werte, für eine Tabellenkalkulation</translation>
    </message>
    <message>
        <source>As text</source>
        <translation>Als Text</translation>
    </message>
    <message>
        <source>Ask</source>
        <translation>Fragen</translation>
    </message>
    <message>
        <source>Ask</source>
        <comment>before a tool is run</comment>
        <translation>Nachfragen</translation>
    </message>
    <message>
        <source>Ask for an answer to this message</source>
        <translation>Um eine Antwort auf diese Nachricht bitten</translation>
    </message>
    <message>
        <source>Ask for two to four answers side by side</source>
        <translation>Um zwei bis vier Antworten nebeneinander bitten</translation>
    </message>
    <message>
        <source>Ask several</source>
        <translation>Mehrere Antworten</translation>
    </message>
    <message>
        <source>Ask several…</source>
        <translation>Mehrere Antworten…</translation>
    </message>
    <message>
        <source>Ask something to begin</source>
        <translation>Mit einer Frage beginnen</translation>
    </message>
    <message>
        <source>Ask: {names}</source>
        <translation>Fragen: {names}</translation>
    </message>
    <message>
        <source>Ask: {question}</source>
        <translation>Fragen: {question}</translation>
    </message>
    <message>
        <source>Asking the servers for their tools…</source>
        <translation>Die Server werden nach ihren Werkzeugen gefragt…</translation>
    </message>
    <message>
        <source>Begin answer</source>
        <translation>Antwort beginnen</translation>
    </message>
    <message>
        <source>Branches of this chat</source>
        <translation>Zweige dieses Chats</translation>
    </message>
    <message>
        <source>Call of {name}</source>
        <translation>Aufruf von {name}</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>Abbrechen</translation>
    </message>
    <message>
        <source>Cancel the question that waits</source>
        <translation>Die wartende Frage abbrechen</translation>
    </message>
    <message>
        <source>Change this answer, or let the model go on from its first words; it is kept as another version</source>
        <translation>Diese Antwort ändern oder das Modell ab ihren ersten Worten weiterschreiben lassen; das wird eine weitere Fassung</translation>
    </message>
    <message>
        <source>Change this message and send it again; the present branch is kept</source>
        <translation>Diese Nachricht ändern und noch einmal senden; der jetzige Zweig bleibt</translation>
    </message>
    <message>
        <source>Chat</source>
        <translation>Chat</translation>
    </message>
    <message>
        <source>Chat settings</source>
        <translation>Chateinstellungen</translation>
    </message>
    <message>
        <source>Check</source>
        <translation>Prüfen</translation>
    </message>
    <message>
        <source>Checking which models suit this computer…</source>
        <translation>Es wird geprüft, welche Modelle zu diesem Computer passen…</translation>
    </message>
    <message>
        <source>Choose a model to begin</source>
        <translation>Zuerst ein Modell wählen</translation>
    </message>
    <message>
        <source>Choose a model…</source>
        <translation>Modell wählen…</translation>
    </message>
    <message>
        <source>Choose what happens when this conversation outgrows the context</source>
        <translation>Wählen, was geschieht, wenn diese Unterhaltung über den Kontext hinauswächst</translation>
    </message>
    <message>
        <source>Close</source>
        <translation>Schließen</translation>
    </message>
    <message>
        <source>Close the search</source>
        <translation>Suche schließen</translation>
    </message>
    <message>
        <source>Close the search (Esc)</source>
        <translation>Suche schließen (Esc)</translation>
    </message>
    <message>
        <source>Code</source>
        <translation>Code</translation>
    </message>
    <message>
        <source>Command, address or JSON of the new server</source>
        <translation>Befehl, Adresse oder JSON des neuen Servers</translation>
    </message>
    <message>
        <source>Compare</source>
        <translation>Vergleichen</translation>
    </message>
    <message>
        <source>Connect</source>
        <translation>Verbinden</translation>
    </message>
    <message>
        <source>Connect to all servers and show their tools</source>
        <translation>Mit allen Servern verbinden und ihre Werkzeuge zeigen</translation>
    </message>
    <message>
        <source>Continue</source>
        <translation>Fortsetzen</translation>
    </message>
    <message>
        <source>Continue (Enter; Shift+Enter breaks the line)</source>
        <translation>Fortsetzen (Enter; Umschalt+Enter beginnt eine neue Zeile)</translation>
    </message>
    <message>
        <source>Continue the answer</source>
        <translation>Die Antwort fortsetzen</translation>
    </message>
    <message>
        <source>Conversation</source>
        <translation>Unterhaltung</translation>
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
        <source>Copy address</source>
        <translation>Adresse kopieren</translation>
    </message>
    <message>
        <source>Copy as CSV</source>
        <translation>Als CSV kopieren</translation>
    </message>
    <message>
        <source>Copy the whole message as Markdown</source>
        <translation>Die ganze Nachricht als Markdown kopieren</translation>
    </message>
    <message>
        <source>Copy this code</source>
        <translation>Diesen Code kopieren</translation>
    </message>
    <message>
        <source>Copy this table as CSV</source>
        <translation>Diese Tabelle als CSV kopieren</translation>
    </message>
    <message>
        <source>DRY (stops loops)</source>
        <translation>DRY (gegen Schleifen)</translation>
    </message>
    <message>
        <source>Default ({value:g})</source>
        <translation>Vorgabe ({value:g})</translation>
    </message>
    <message>
        <source>Delete “{name}”</source>
        <translation>„{name}“ löschen</translation>
    </message>
    <message>
        <source>Deny</source>
        <translation>Ablehnen</translation>
    </message>
    <message>
        <source>Do not run it; the model is told so</source>
        <translation>Nicht ausführen; das Modell erfährt es</translation>
    </message>
    <message>
        <source>Document {name} of the folder, {kind}, {size}</source>
        <translation>Dokument {name} des Ordners, {kind}, {size}</translation>
    </message>
    <message>
        <source>Document {name}, {kind}, {size}</source>
        <translation>Dokument {name}, {kind}, {size}</translation>
    </message>
    <message>
        <source>Documents of the folder</source>
        <translation>Dokumente des Ordners</translation>
    </message>
    <message>
        <source>Documents of the folder…</source>
        <translation>Dokumente des Ordners…</translation>
    </message>
    <message>
        <source>Documents of this message</source>
        <translation>Dokumente dieser Nachricht</translation>
    </message>
    <message>
        <source>Documents of “{folder}”</source>
        <translation>Dokumente aus „{folder}“</translation>
    </message>
    <message>
        <source>Drafted {by}, accepted by the model</source>
        <translation>Entwurf {by}, vom Modell angenommen</translation>
    </message>
    <message>
        <source>Drafted, accepted by the model</source>
        <translation>Entwurf, vom Modell angenommen</translation>
    </message>
    <message>
        <source>Drafts the next tokens, which the model then checks all at once: speculative decoding</source>
        <translation>Entwirft die nächsten Token, die das Modell dann alle auf einmal prüft: spekulatives Decodieren</translation>
    </message>
    <message>
        <source>Drop the middle (keep first and latest)</source>
        <translation>Mitte weglassen (Anfang und Ende behalten)</translation>
    </message>
    <message>
        <source>Drop tokens below this share of the likeliest one&apos;s probability.</source>
        <translation>Lässt Token unter diesem Anteil der Wahrscheinlichkeit des wahrscheinlichsten weg.</translation>
    </message>
    <message>
        <source>Edit</source>
        <translation>Bearbeiten</translation>
    </message>
    <message>
        <source>Edit the question that waits</source>
        <translation>Die wartende Frage bearbeiten</translation>
    </message>
    <message>
        <source>Editing the answer: your text is kept as another version of it. Esc leaves it as it was.</source>
        <translation>Die Antwort wird bearbeitet: Ihr Text wird eine weitere Fassung. Esc lässt sie, wie sie war.</translation>
    </message>
    <message>
        <source>Editing: the new text starts a branch, the old one is kept. Esc leaves it as it was.</source>
        <translation>Bearbeitung: Der neue Text beginnt einen Zweig, der alte bleibt. Esc lässt alles, wie es war.</translation>
    </message>
    <message>
        <source>Empty draws a new one for each answer.</source>
        <translation>Leer: ein neuer für jede Antwort.</translation>
    </message>
    <message>
        <source>Every optimisation is a switch. Flip one and watch what it does; measure what it buys on this computer.</source>
        <translation>Jede Optimierung ist ein Schalter. Umlegen und sehen, was er tut; messen, was er auf diesem Computer bringt.</translation>
    </message>
    <message>
        <source>Every question in this folder is asked with these documents, from the next one on. They stand before the chat, so that the model reads each once for all chats that begin here.</source>
        <translation>Jede Frage in diesem Ordner wird mit diesen Dokumenten gestellt, von der nächsten an. Sie stehen vor dem Chat, sodass das Modell jedes nur einmal für alle Chats liest, die hier beginnen.</translation>
    </message>
    <message>
        <source>Failed: {why}</source>
        <translation>Fehlgeschlagen: {why}</translation>
    </message>
    <message>
        <source>Files that can be read ({patterns})</source>
        <translation>Lesbare Dateien ({patterns})</translation>
    </message>
    <message>
        <source>Find in this chat</source>
        <translation>Im Chat suchen</translation>
    </message>
    <message>
        <source>First answer</source>
        <translation>Erste Antwort</translation>
    </message>
    <message>
        <source>Found by their words, and by their meaning with {model}.</source>
        <translation>Gefunden nach Wörtern und mit {model} nach Bedeutung.</translation>
    </message>
    <message>
        <source>Found by their words. With an embedding model (Settings, Passages by meaning) those are found too that say it in other words.</source>
        <translation>Gefunden nach Wörtern. Mit einem Embedding-Modell (Einstellungen, Abschnitte nach Bedeutung) auch solche, die es anders sagen.</translation>
    </message>
    <message>
        <source>Frequency penalty</source>
        <translation>Häufigkeitsabzug</translation>
    </message>
    <message>
        <source>From the next message on the model sees the beginning and the end of this conversation, not its middle.</source>
        <translation>Ab der nächsten Nachricht sieht das Modell Anfang und Ende dieser Unterhaltung, nicht ihre Mitte.</translation>
    </message>
    <message>
        <source>Get a model</source>
        <translation>Ein Modell holen</translation>
    </message>
    <message>
        <source>Get a model for this computer</source>
        <translation>Ein Modell für diesen Computer holen</translation>
    </message>
    <message>
        <source>Get a model…</source>
        <translation>Modell holen…</translation>
    </message>
    <message>
        <source>Go on</source>
        <translation>Fortsetzen</translation>
    </message>
    <message>
        <source>High</source>
        <translation>Hoch</translation>
    </message>
    <message>
        <source>Highlight drafted tokens</source>
        <translation>Entworfene Token hervorheben</translation>
    </message>
    <message>
        <source>Highlight drafted tokens: accepted ones, and the model&apos;s where a draft was rejected</source>
        <translation>Entworfene Token hervorheben: angenommene, und die des Modells, wo ein Entwurf abgelehnt wurde</translation>
    </message>
    <message>
        <source>How hard the model thinks before it answers.</source>
        <translation>Wie gründlich das Modell vor der Antwort nachdenkt.</translation>
    </message>
    <message>
        <source>It is running again and the model is loaded.</source>
        <translation>Sie läuft wieder, und das Modell ist geladen.</translation>
    </message>
    <message>
        <source>It is running again.</source>
        <translation>Sie läuft wieder.</translation>
    </message>
    <message>
        <source>Its passages can be found by meaning.</source>
        <translation>Nach Bedeutung auffindbar.</translation>
    </message>
    <message>
        <source>Its passages could not be searched, so its beginning was sent. ({reason})</source>
        <translation>Seine Abschnitte ließen sich nicht durchsuchen, daher wurde sein Anfang gesendet. ({reason})</translation>
    </message>
    <message>
        <source>Its passages were searched by words alone. ({reason})</source>
        <translation>Seine Abschnitte wurden nur nach Wörtern durchsucht. ({reason})</translation>
    </message>
    <message>
        <source>Keep only this many tokens; 0 keeps all.</source>
        <translation>Behält nur so viele Token; 0 behält alle.</translation>
    </message>
    <message>
        <source>Keep the likeliest tokens that together reach this probability.</source>
        <translation>Behält die wahrscheinlichsten Token, die zusammen diese Wahrscheinlichkeit erreichen.</translation>
    </message>
    <message>
        <source>Keep the text and let the model go on from it ({keys})</source>
        <translation>Den Text behalten und das Modell von da an weiterschreiben lassen ({keys})</translation>
    </message>
    <message>
        <source>Keep the tokens of typical surprise that together reach this.</source>
        <translation>Behält die Token von typischem Informationsgehalt, die zusammen dies erreichen.</translation>
    </message>
    <message>
        <source>Kvasir can go on if the model no longer sees the middle of the conversation.</source>
        <translation>Kvasir kann weitermachen, wenn das Modell die Mitte der Unterhaltung nicht mehr sieht.</translation>
    </message>
    <message>
        <source>Kvasir opens addresses of web pages (http, https) and of e-mail (mailto) only; this one begins with &quot;{scheme}:&quot;.</source>
        <translation>Kvasir öffnet nur Adressen von Webseiten (http, https) und E-Mail (mailto); diese beginnt mit „{scheme}:“.</translation>
    </message>
    <message>
        <source>Kvasir opens addresses of web pages (http, https) and of e-mail (mailto) only; this one is none.</source>
        <translation>Kvasir öffnet nur Adressen von Webseiten (http, https) und E-Mail (mailto); diese ist keine.</translation>
    </message>
    <message>
        <source>Let the model go on where the text ends</source>
        <translation>Das Modell am Ende des Texts weiterschreiben lassen</translation>
    </message>
    <message>
        <source>Let the model think before it answers. Slower, often better for hard questions.</source>
        <translation>Das Modell vor der Antwort nachdenken lassen. Langsamer, bei schweren Fragen oft besser.</translation>
    </message>
    <message>
        <source>Link</source>
        <translation>Link</translation>
    </message>
    <message>
        <source>LoRA adapters (adapter_config.json adapter_model.safetensors)</source>
        <translation>LoRA-Adapter (adapter_config.json adapter_model.safetensors)</translation>
    </message>
    <message>
        <source>Load a LoRA adapter</source>
        <translation>LoRA-Adapter laden</translation>
    </message>
    <message>
        <source>Load from a folder…</source>
        <translation>Aus einem Ordner laden…</translation>
    </message>
    <message>
        <source>Log in at {name}</source>
        <translation>Bei {name} anmelden</translation>
    </message>
    <message>
        <source>Log in on the page that opens in your browser…</source>
        <translation>Auf der Seite anmelden, die sich im Browser öffnet…</translation>
    </message>
    <message>
        <source>Low</source>
        <translation>Niedrig</translation>
    </message>
    <message>
        <source>Low-rank weights (LoRA, in PEFT&apos;s format)
that are added to the model&apos;s own for the answers of this chat.</source>
        <translation>Gewichte niedrigen Rangs (LoRA, im Format von PEFT),
die für die Antworten dieses Chats zu denen des Modells kommen.</translation>
    </message>
    <message>
        <source>MCP servers</source>
        <translation>MCP-Server</translation>
    </message>
    <message>
        <source>MCP servers whose tools the model can use in this chat. Each call is shown, and asked for unless you allow it.</source>
        <translation>MCP-Server, deren Werkzeuge das Modell in diesem Chat nutzen kann. Jeder Aufruf wird gezeigt und erfragt, wenn er nicht schon erlaubt ist.</translation>
    </message>
    <message>
        <source>MCP servers…</source>
        <translation>MCP-Server…</translation>
    </message>
    <message>
        <source>Max tokens</source>
        <translation>Max. Token</translation>
    </message>
    <message>
        <source>Medium</source>
        <translation>Mittel</translation>
    </message>
    <message>
        <source>Message</source>
        <translation>Nachricht</translation>
    </message>
    <message>
        <source>Message Kvasir</source>
        <translation>Nachricht an Kvasir</translation>
    </message>
    <message>
        <source>Message text</source>
        <translation>Text der Nachricht</translation>
    </message>
    <message>
        <source>Models of other servers</source>
        <translation>Modelle anderer Server</translation>
    </message>
    <message>
        <source>Models that suit this computer, each with its strengths, or any on Hugging Face.</source>
        <translation>Modelle, die zu diesem Computer passen, jedes mit seinen Stärken, oder ein beliebiges von Hugging Face.</translation>
    </message>
    <message>
        <source>Name</source>
        <translation>Name</translation>
    </message>
    <message>
        <source>Name of the new server</source>
        <translation>Name des neuen Servers</translation>
    </message>
    <message>
        <source>Name of the preset</source>
        <translation>Name der Voreinstellung</translation>
    </message>
    <message>
        <source>Name, then Enter</source>
        <translation>Name, dann Enter</translation>
    </message>
    <message>
        <source>New chat</source>
        <translation>Neuer Chat</translation>
    </message>
    <message>
        <source>New chat in “{folder}”</source>
        <translation>Neuer Chat in „{folder}“</translation>
    </message>
    <message>
        <source>New text below: to the end</source>
        <translation>Neuer Text weiter unten: zum Ende</translation>
    </message>
    <message>
        <source>New text below: to the end (End)</source>
        <translation>Neuer Text weiter unten: zum Ende (Ende)</translation>
    </message>
    <message>
        <source>Next match</source>
        <translation>Nächster Treffer</translation>
    </message>
    <message>
        <source>Next match (Enter)</source>
        <translation>Nächster Treffer (Enter)</translation>
    </message>
    <message>
        <source>Next version</source>
        <translation>Nächste Fassung</translation>
    </message>
    <message>
        <source>No documents yet. Add files, or drop them here.</source>
        <translation>Noch keine Dokumente. Dateien hinzufügen oder hier ablegen.</translation>
    </message>
    <message>
        <source>No match</source>
        <translation>Kein Treffer</translation>
    </message>
    <message>
        <source>No model is loaded.</source>
        <translation>Kein Modell ist geladen.</translation>
    </message>
    <message>
        <source>No model of the list fits into the memory that is free. Close other programs, or search for a smaller model.</source>
        <translation>Kein Modell der Liste passt in den freien Speicher. Andere Programme schließen oder ein kleineres Modell suchen.</translation>
    </message>
    <message>
        <source>No word of the question stands in it, so its beginning and passages from all over it were sent.</source>
        <translation>Kein Wort der Frage kommt darin vor, daher wurden sein Anfang und Abschnitte aus allen Teilen gesendet.</translation>
    </message>
    <message>
        <source>None</source>
        <comment>no preset</comment>
        <translation>Keine</translation>
    </message>
    <message>
        <source>None (the model alone)</source>
        <translation>Keiner (nur das Modell)</translation>
    </message>
    <message>
        <source>Not read by meaning yet: {reason}</source>
        <translation>Noch nicht nach Bedeutung gelesen: {reason}</translation>
    </message>
    <message>
        <source>Number of answers</source>
        <translation>Anzahl der Antworten</translation>
    </message>
    <message>
        <source>Off</source>
        <translation>Aus</translation>
    </message>
    <message>
        <source>One question waits already</source>
        <translation>Eine Frage wartet bereits</translation>
    </message>
    <message>
        <source>Open</source>
        <translation>Öffnen</translation>
    </message>
    <message>
        <source>Open Compare</source>
        <translation>Vergleich öffnen</translation>
    </message>
    <message>
        <source>Open a file…</source>
        <translation>Datei öffnen…</translation>
    </message>
    <message>
        <source>Open the address</source>
        <translation>Die Adresse öffnen</translation>
    </message>
    <message>
        <source>Open this page of {host} in the browser?</source>
        <translation>Diese Seite von {host} im Browser öffnen?</translation>
    </message>
    <message>
        <source>Other ways to send</source>
        <translation>Anders senden</translation>
    </message>
    <message>
        <source>Passage {number}</source>
        <translation>Abschnitt {number}</translation>
    </message>
    <message>
        <source>Passage {place}</source>
        <translation>Abschnitt {place}</translation>
    </message>
    <message>
        <source>Pasted text</source>
        <translation>Eingefügter Text</translation>
    </message>
    <message>
        <source>Picture</source>
        <translation>Bild</translation>
    </message>
    <message>
        <source>Pictures ({patterns})</source>
        <translation>Bilder ({patterns})</translation>
    </message>
    <message>
        <source>Presence penalty</source>
        <translation>Präsenzabzug</translation>
    </message>
    <message>
        <source>Preset</source>
        <translation>Voreinstellung</translation>
    </message>
    <message>
        <source>Preset: {name}</source>
        <translation>Voreinstellung: {name}</translation>
    </message>
    <message>
        <source>Presets</source>
        <translation>Voreinstellungen</translation>
    </message>
    <message>
        <source>Press “Use this one” under the answer that the chat is to go on from; your text stays here.</source>
        <translation>Unter der Antwort, mit der der Chat weitergehen soll, „Diese nehmen“ drücken; Ihr Text bleibt hier.</translation>
    </message>
    <message>
        <source>Previous match</source>
        <translation>Voriger Treffer</translation>
    </message>
    <message>
        <source>Previous match (Shift+Enter)</source>
        <translation>Voriger Treffer (Umschalt+Enter)</translation>
    </message>
    <message>
        <source>Previous version</source>
        <translation>Vorige Fassung</translation>
    </message>
    <message>
        <source>Programs and addresses whose tools a model can use in a chat (Model Context Protocol). A program runs with your rights: add only what you trust. Each call is shown, and asked for unless its tool is always allowed.</source>
        <translation>Programme und Adressen, deren Werkzeuge ein Modell in einem Chat nutzen kann (Model Context Protocol). Ein Programm läuft mit Ihren Rechten: nur Vertrauenswürdiges hinzufügen. Jeder Aufruf wird gezeigt und erfragt, wenn sein Werkzeug nicht immer erlaubt ist.</translation>
    </message>
    <message>
        <source>Put it into the message as text</source>
        <translation>Als Text in die Nachricht setzen</translation>
    </message>
    <message>
        <source>Put the pasted text into the message</source>
        <translation>Den eingefügten Text in die Nachricht setzen</translation>
    </message>
    <message>
        <source>Random</source>
        <translation>Zufällig</translation>
    </message>
    <message>
        <source>Read again</source>
        <translation>Neu lesen</translation>
    </message>
    <message>
        <source>Read once, kept: {saved:,} of {tokens:,} tokens came from the cache</source>
        <translation>Einmal gelesen, behalten: {saved:,} von {tokens:,} Token kamen aus dem Cache</translation>
    </message>
    <message>
        <source>Read once, kept: {saved:,} tokens came from the cache in {times:,} answers</source>
        <translation>Einmal gelesen, behalten: {saved:,} Token kamen in {times:,} Antworten aus dem Cache</translation>
    </message>
    <message>
        <source>Reading by meaning: {done:,} of {count:,}</source>
        <translation>Nach Bedeutung gelesen: {done:,} von {count:,}</translation>
    </message>
    <message>
        <source>Reading {name}</source>
        <translation>Das Lesen von {name}</translation>
    </message>
    <message>
        <source>Reading {name} gave no text.</source>
        <translation>Das Lesen von {name} ergab keinen Text.</translation>
    </message>
    <message>
        <source>Reasoning effort</source>
        <translation>Denkaufwand</translation>
    </message>
    <message>
        <source>Regenerate</source>
        <translation>Neu antworten</translation>
    </message>
    <message>
        <source>Remove</source>
        <translation>Entfernen</translation>
    </message>
    <message>
        <source>Remove {name}</source>
        <translation>{name} entfernen</translation>
    </message>
    <message>
        <source>Rename “{name}”…</source>
        <translation>„{name}“ umbenennen…</translation>
    </message>
    <message>
        <source>Repetition penalty</source>
        <translation>Wiederholungsabzug</translation>
    </message>
    <message>
        <source>Rest the mouse on a highlighted word to see what drafted it. The colours change the view only.</source>
        <translation>Der Mauszeiger auf einem hervorgehobenen Wort zeigt, was es entworfen hat. Die Farben ändern nur die Ansicht.</translation>
    </message>
    <message>
        <source>Result</source>
        <translation>Ergebnis</translation>
    </message>
    <message>
        <source>Result: {size}</source>
        <translation>Ergebnis: {size}</translation>
    </message>
    <message>
        <source>Results of tools</source>
        <translation>Ergebnisse von Werkzeugen</translation>
    </message>
    <message>
        <source>Rule for {name}</source>
        <translation>Regel für {name}</translation>
    </message>
    <message>
        <source>Run again exactly</source>
        <translation>Wiederholen</translation>
    </message>
    <message>
        <source>Run again exactly</source>
        <comment>the second of two answers</comment>
        <translation>Exakt wiederholt</translation>
    </message>
    <message>
        <source>Run it, and from now on every call of this tool, in all chats</source>
        <translation>Ausführen, und ab jetzt jeden Aufruf dieses Werkzeugs, in allen Chats</translation>
    </message>
    <message>
        <source>Run this call, and ask again for the next one</source>
        <translation>Diesen Aufruf ausführen und beim nächsten wieder fragen</translation>
    </message>
    <message>
        <source>Sampling</source>
        <translation>Sampling</translation>
    </message>
    <message>
        <source>Save</source>
        <translation>Speichern</translation>
    </message>
    <message>
        <source>Save (Enter; Shift+Enter breaks the line)</source>
        <translation>Speichern (Enter; Umschalt+Enter beginnt eine neue Zeile)</translation>
    </message>
    <message>
        <source>Save and continue</source>
        <translation>Speichern und fortsetzen</translation>
    </message>
    <message>
        <source>Save as a new preset…</source>
        <translation>Als neue Voreinstellung speichern…</translation>
    </message>
    <message>
        <source>Save elsewhere…</source>
        <translation>Anderswo speichern…</translation>
    </message>
    <message>
        <source>Save the answer</source>
        <translation>Die Antwort speichern</translation>
    </message>
    <message>
        <source>Save the answer that you edit first, or leave it with Esc.</source>
        <translation>Zuerst die bearbeitete Antwort speichern oder mit Esc verlassen.</translation>
    </message>
    <message>
        <source>Save the changes to “{name}”</source>
        <translation>Änderungen an „{name}“ speichern</translation>
    </message>
    <message>
        <source>Save this code as a file</source>
        <translation>Diesen Code als Datei speichern</translation>
    </message>
    <message>
        <source>Saved</source>
        <translation>Gespeichert</translation>
    </message>
    <message>
        <source>Save…</source>
        <translation>Speichern…</translation>
    </message>
    <message>
        <source>See in the Lab what made the difference</source>
        <translation>Im Labor sehen, was den Unterschied machte</translation>
    </message>
    <message>
        <source>See in the Lab why: {figure}</source>
        <translation>Im Labor sehen, warum: {figure}</translation>
    </message>
    <message>
        <source>See why</source>
        <translation>Warum?</translation>
    </message>
    <message>
        <source>See why it is fast</source>
        <translation>Sehen, warum es schnell ist</translation>
    </message>
    <message>
        <source>Seed</source>
        <translation>Startwert</translation>
    </message>
    <message>
        <source>Send</source>
        <translation>Senden</translation>
    </message>
    <message>
        <source>Send (Enter; Shift+Enter breaks the line)</source>
        <translation>Senden (Enter; Umschalt+Enter beginnt eine neue Zeile)</translation>
    </message>
    <message>
        <source>Send the message</source>
        <translation>Die Nachricht senden</translation>
    </message>
    <message>
        <source>Send what you wrote first, or delete it.</source>
        <translation>Zuerst das Geschriebene senden oder löschen.</translation>
    </message>
    <message>
        <source>Shorten a message or start a new chat.</source>
        <translation>Eine Nachricht kürzen oder einen neuen Chat beginnen.</translation>
    </message>
    <message>
        <source>Show or hide the arguments of this call</source>
        <translation>Die Argumente dieses Aufrufs zeigen oder verbergen</translation>
    </message>
    <message>
        <source>Show or hide this passage</source>
        <translation>Diesen Abschnitt zeigen oder verbergen</translation>
    </message>
    <message>
        <source>Show or hide what the model reads of this document</source>
        <translation>Zeigen oder verbergen, was das Modell von diesem Dokument liest</translation>
    </message>
    <message>
        <source>Show or hide what the model thought before it answered</source>
        <translation>Zeigen oder verbergen, was das Modell vor der Antwort dachte</translation>
    </message>
    <message>
        <source>Show or hide what the tool returned</source>
        <translation>Zeigen oder verbergen, was das Werkzeug lieferte</translation>
    </message>
    <message>
        <source>Show switches and plots</source>
        <translation>Schalter und Diagramme</translation>
    </message>
    <message>
        <source>Show this answer and the one that it repeats side by side</source>
        <translation>Diese Antwort und die wiederholte nebeneinander zeigen</translation>
    </message>
    <message>
        <source>Speculation</source>
        <translation>Spekulation</translation>
    </message>
    <message>
        <source>Start the engine</source>
        <translation>Engine starten</translation>
    </message>
    <message>
        <source>Stop</source>
        <translation>Stopp</translation>
    </message>
    <message>
        <source>Stop (Esc)</source>
        <translation>Stopp (Esc)</translation>
    </message>
    <message>
        <source>Stop strings</source>
        <translation>Stopptexte</translation>
    </message>
    <message>
        <source>Stop strings, one per line</source>
        <translation>Stopptexte, einer je Zeile</translation>
    </message>
    <message>
        <source>Stop the answer</source>
        <translation>Die Antwort stoppen</translation>
    </message>
    <message>
        <source>Stop the answer that is being written first.</source>
        <translation>Zuerst die Antwort stoppen, die gerade geschrieben wird.</translation>
    </message>
    <message>
        <source>Strength against repeating long runs of the text; 0 is off.</source>
        <translation>Stärke gegen das Wiederholen langer Textstücke; 0 ist aus.</translation>
    </message>
    <message>
        <source>System prompt</source>
        <translation>Systemprompt</translation>
    </message>
    <message>
        <source>System prompt and sampling of this chat</source>
        <translation>Systemprompt und Sampling dieses Chats</translation>
    </message>
    <message>
        <source>TTFT {time}</source>
        <translation>TTFT {time}</translation>
    </message>
    <message>
        <source>Table</source>
        <translation>Tabelle</translation>
    </message>
    <message>
        <source>Take out picture {number}</source>
        <translation>Bild {number} herausnehmen</translation>
    </message>
    <message>
        <source>Take out {name}</source>
        <translation>{name} herausnehmen</translation>
    </message>
    <message>
        <source>Take this picture out</source>
        <translation>Dieses Bild herausnehmen</translation>
    </message>
    <message>
        <source>Taken off every token that the answer already has.</source>
        <translation>Abzug für jedes Token, das die Antwort schon hat.</translation>
    </message>
    <message>
        <source>Taken off for each time that the answer has the token.</source>
        <translation>Abzug für jedes Mal, das die Antwort das Token hat.</translation>
    </message>
    <message>
        <source>Temperature</source>
        <translation>Temperatur</translation>
    </message>
    <message>
        <source>Temperature {value:g}</source>
        <translation>Temperatur {value:g}</translation>
    </message>
    <message>
        <source>Text of {name}</source>
        <translation>Text von {name}</translation>
    </message>
    <message>
        <source>The answer is empty.</source>
        <translation>Die Antwort ist leer.</translation>
    </message>
    <message>
        <source>The answer stops and says so. Nothing is left out.</source>
        <translation>Die Antwort hält an und sagt es. Nichts wird weggelassen.</translation>
    </message>
    <message>
        <source>The answer that this one repeats is gone.</source>
        <translation>Die Antwort, die diese wiederholt, gibt es nicht mehr.</translation>
    </message>
    <message>
        <source>The context has no room left for any passage of it.</source>
        <translation>Der Kontext hat für keinen Abschnitt davon noch Platz.</translation>
    </message>
    <message numerus="yes">
        <source>The context is full, so the answer stopped after {n:,} tokens.</source>
        <translation>
            <numerusform>Der Kontext ist voll, daher hielt die Antwort nach 1 Token an.</numerusform>
            <numerusform>Der Kontext ist voll, daher hielt die Antwort nach {n:,} Token an.</numerusform>
        </translation>
    </message>
    <message>
        <source>The conversation has {whole:,} tokens, of which the model sees {used:,}.</source>
        <translation>Die Unterhaltung hat {whole:,} Token, von denen das Modell {used:,} sieht.</translation>
    </message>
    <message>
        <source>The conversation leaves no room for it: begin a new chat.</source>
        <translation>Die Unterhaltung lässt dafür keinen Platz: einen neuen Chat beginnen.</translation>
    </message>
    <message>
        <source>The conversation no longer fits whole: the model sees its beginning and its end.</source>
        <translation>Die Unterhaltung passt nicht mehr ganz hinein: Das Modell sieht Anfang und Ende.</translation>
    </message>
    <message>
        <source>The conversation no longer fits whole: the model will not see its middle.</source>
        <translation>Die Unterhaltung passt nicht mehr ganz hinein: Das Modell wird ihre Mitte nicht sehen.</translation>
    </message>
    <message>
        <source>The conversation no longer fits: shorten a message or start a new chat.</source>
        <translation>Die Unterhaltung passt nicht mehr hinein: eine Nachricht kürzen oder einen neuen Chat beginnen.</translation>
    </message>
    <message>
        <source>The engine is not running</source>
        <translation>Die Engine läuft nicht</translation>
    </message>
    <message>
        <source>The engine is starting</source>
        <translation>Die Engine startet</translation>
    </message>
    <message>
        <source>The file could not be written ({why}). Choose another folder.</source>
        <translation>Die Datei ließ sich nicht schreiben ({why}). Einen anderen Ordner wählen.</translation>
    </message>
    <message>
        <source>The file is gone; its text is kept.</source>
        <translation>Die Datei fehlt; ihr Text bleibt.</translation>
    </message>
    <message>
        <source>The file is not there any more; what was read of it stays in use.</source>
        <translation>Die Datei ist nicht mehr da; was von ihr gelesen wurde, bleibt in Gebrauch.</translation>
    </message>
    <message>
        <source>The file was changed since it was read.</source>
        <translation>Die Datei wurde seit dem Lesen geändert.</translation>
    </message>
    <message>
        <source>The message has {chars:,} characters and {most:,} are the most. Send a part of it.</source>
        <translation>Die Nachricht hat {chars:,} Zeichen, höchstens {most:,} sind möglich. Einen Teil davon senden.</translation>
    </message>
    <message>
        <source>The model is loading</source>
        <translation>Das Modell wird geladen</translation>
    </message>
    <message>
        <source>The model keeps the first and latest messages and no longer sees those between, which are dimmed.</source>
        <translation>Das Modell behält die ersten und die letzten Nachrichten; die dazwischen sieht es nicht mehr, sie werden blass gezeigt.</translation>
    </message>
    <message numerus="yes">
        <source>The model no longer sees these {n:,} messages</source>
        <translation>
            <numerusform>Diese Nachricht sieht das Modell nicht mehr</numerusform>
            <numerusform>Diese {n:,} Nachrichten sieht das Modell nicht mehr</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>The model no longer sees these {n:,} messages ({tokens:,} tokens)</source>
        <translation>
            <numerusform>Diese Nachricht sieht das Modell nicht mehr ({tokens:,} Token)</numerusform>
            <numerusform>Diese {n:,} Nachrichten sieht das Modell nicht mehr ({tokens:,} Token)</numerusform>
        </translation>
    </message>
    <message>
        <source>The model sees only the first {sinks:,} and the last {window:,} tokens</source>
        <translation>Das Modell sieht nur die ersten {sinks:,} und die letzten {window:,} Token</translation>
    </message>
    <message>
        <source>The model sees only the last {window:,} tokens</source>
        <translation>Das Modell sieht nur die letzten {window:,} Token</translation>
    </message>
    <message>
        <source>The model sees the first tokens and the last ones, and goes on writing. What it wrote long ago fades.</source>
        <translation>Das Modell sieht die ersten und die letzten Token und schreibt weiter. Was es vor langem schrieb, verblasst.</translation>
    </message>
    <message>
        <source>The model thought but gave no answer.</source>
        <translation>Das Modell dachte nach, gab aber keine Antwort.</translation>
    </message>
    <message>
        <source>The model was not loaded again: choose one above.</source>
        <translation>Das Modell wurde nicht wieder geladen: oben eines wählen.</translation>
    </message>
    <message>
        <source>The model&apos;s token: the draft was rejected here</source>
        <translation>Token des Modells: Hier wurde der Entwurf abgelehnt</translation>
    </message>
    <message>
        <source>The next answer begins without reading these tokens again: they are in the cache, or on disk.</source>
        <translation>Die nächste Antwort beginnt, ohne diese Token neu zu lesen: Sie liegen im Cache oder auf der Festplatte.</translation>
    </message>
    <message>
        <source>The prompt leaves the earlier conversation at token {token:,}.</source>
        <translation>Der Prompt weicht ab Token {token:,} von der früheren Unterhaltung ab.</translation>
    </message>
    <message>
        <source>The prompt leaves the earlier conversation at token {token:,}: {reason}.</source>
        <translation>Der Prompt weicht ab Token {token:,} von der früheren Unterhaltung ab: {reason}.</translation>
    </message>
    <message>
        <source>The same prompt, settings and seed: the text should be the same</source>
        <translation>Derselbe Prompt mit gleichen Einstellungen und Startwert: Der Text sollte gleich sein</translation>
    </message>
    <message>
        <source>The search</source>
        <translation>Die Suche</translation>
    </message>
    <message>
        <source>The system opened no program for this address. Copy it instead.</source>
        <translation>Das System öffnete kein Programm für diese Adresse. Die Adresse kopieren.</translation>
    </message>
    <message>
        <source>The tools that the first answer had were not kept: this one had those of now.</source>
        <translation>Die Werkzeuge der ersten Antwort wurden nicht aufbewahrt: Diese hatte die jetzigen.</translation>
    </message>
    <message>
        <source>There are no MCP servers yet.</source>
        <translation>Es gibt noch keine MCP-Server.</translation>
    </message>
    <message>
        <source>There is a preset called “{name}” already. Choose another name.</source>
        <translation>Es gibt schon eine Voreinstellung namens „{name}“. Einen anderen Namen wählen.</translation>
    </message>
    <message>
        <source>There is no text to go on from. Regenerate asks again.</source>
        <translation>Es gibt keinen Text zum Fortsetzen. „Neu antworten“ fragt noch einmal.</translation>
    </message>
    <message>
        <source>Think before answering</source>
        <translation>Vor der Antwort nachdenken</translation>
    </message>
    <message>
        <source>Thinking</source>
        <translation>Nachdenken</translation>
    </message>
    <message>
        <source>Thinking… {seconds} s</source>
        <translation>Denkt nach… {seconds} s</translation>
    </message>
    <message>
        <source>This address is not complete, so it is not opened.</source>
        <translation>Diese Adresse ist unvollständig und wird daher nicht geöffnet.</translation>
    </message>
    <message>
        <source>This chat&apos;s settings</source>
        <translation>Einstellungen dieses Chats</translation>
    </message>
    <message>
        <source>This model runs on another server ({server}): Kvasir sees only its text and its counts of tokens.</source>
        <translation>Dieses Modell läuft auf einem anderen Server ({server}): Kvasir sieht nur seinen Text und seine Tokenzahlen.</translation>
    </message>
    <message>
        <source>To the end</source>
        <translation>Zum Ende</translation>
    </message>
    <message>
        <source>To the end (End)</source>
        <translation>Zum Ende (Ende)</translation>
    </message>
    <message>
        <source>Tokens; empty means as long as the context allows.</source>
        <translation>Token; leer heißt, so lang, wie der Kontext es zulässt.</translation>
    </message>
    <message>
        <source>Too long to send whole: passages that fit each question will be sent.</source>
        <translation>Zu lang: Abschnitte, die zur jeweiligen Frage passen, werden gesendet.</translation>
    </message>
    <message>
        <source>Too long to send whole: passages that fit your question will be sent.</source>
        <translation>Zu lang: Abschnitte, die zur Frage passen, werden gesendet.</translation>
    </message>
    <message>
        <source>Tools</source>
        <translation>Werkzeuge</translation>
    </message>
    <message>
        <source>Tools: {names}</source>
        <translation>Werkzeuge: {names}</translation>
    </message>
    <message>
        <source>Try again</source>
        <translation>Erneut versuchen</translation>
    </message>
    <message>
        <source>Two models of this computer cannot answer at once, as one is loaded at a time; Compare loads them in turn.</source>
        <translation>Zwei Modelle dieses Computers können nicht zugleich antworten, da nur eines geladen ist; der Vergleich lädt sie nacheinander.</translation>
    </message>
    <message>
        <source>Unload {name}</source>
        <translation>{name} entladen</translation>
    </message>
    <message>
        <source>Unwrap</source>
        <translation>Umbruch aus</translation>
    </message>
    <message>
        <source>Use none of the folder&apos;s documents in this chat</source>
        <translation>Kein Dokument des Ordners in diesem Chat verwenden</translation>
    </message>
    <message>
        <source>Use this one</source>
        <translation>Diese nehmen</translation>
    </message>
    <message>
        <source>Version {number} of {count}: all versions in this chat</source>
        <translation>Fassung {number} von {count}: alle Fassungen in diesem Chat</translation>
    </message>
    <message>
        <source>What the colours mean: {meanings}</source>
        <translation>Bedeutung der Farben: {meanings}</translation>
    </message>
    <message>
        <source>What the model should know or how it should answer</source>
        <translation>Was das Modell wissen oder wie es antworten soll</translation>
    </message>
    <message>
        <source>What the model thought</source>
        <translation>Was das Modell dachte</translation>
    </message>
    <message>
        <source>What this model does without, and why</source>
        <translation>Worauf dieses Modell verzichtet, und warum</translation>
    </message>
    <message>
        <source>What you insert has {chars:,} characters, and a message can have {most:,}. Insert a part of it.</source>
        <translation>Das Eingefügte hat {chars:,} Zeichen, eine Nachricht kann {most:,} haben. Einen Teil davon einfügen.</translation>
    </message>
    <message>
        <source>What you write stays on this computer.</source>
        <translation>Was Sie schreiben, bleibt auf diesem Computer.</translation>
    </message>
    <message>
        <source>When it is full…</source>
        <translation>Wenn er voll ist…</translation>
    </message>
    <message>
        <source>When the context is full</source>
        <translation>Wenn der Kontext voll ist</translation>
    </message>
    <message>
        <source>Without the documents of “{folder}”</source>
        <translation>Ohne die Dokumente aus „{folder}“</translation>
    </message>
    <message>
        <source>With an embedding model (Settings, Passages by meaning) those are found that say it in other words.</source>
        <translation>Mit einem Embedding-Modell (Einstellungen, Abschnitte nach Bedeutung) werden solche gefunden, die es anders sagen.</translation>
    </message>
    <message>
        <source>All answers start at once and stand side by side; choose the one that the chat goes on from. Another seed: the same settings, other random choices.</source>
        <translation>Alle Antworten beginnen zugleich und stehen nebeneinander; mit der gewählten geht der Chat weiter. Anderer Startwert: dieselben Einstellungen, andere Zufallswahl.</translation>
    </message>
    <message>
        <source>All models…</source>
        <translation>Alle Modelle…</translation>
    </message>
    <message>
        <source>Or ask the model that comes with Kvasir. It is tiny and knows only its manual:</source>
        <translation>Oder das mitgelieferte Modell fragen. Es ist winzig und kennt nur Kvasirs Handbuch, auf Englisch:</translation>
    </message>
    <message>
        <source>The model that comes with Kvasir is tiny and knows only its manual. For anything else get another model.</source>
        <translation>Das mitgelieferte Modell ist winzig und kennt nur Kvasirs Handbuch, auf Englisch. Für alles andere ein anderes Modell holen.</translation>
    </message>
    <message>
        <source>Wrap</source>
        <translation>Umbrechen</translation>
    </message>
    <message>
        <source>Wrap long lines</source>
        <translation>Lange Zeilen umbrechen</translation>
    </message>
    <message>
        <source>Write a message</source>
        <translation>Nachricht schreiben</translation>
    </message>
    <message>
        <source>Write an e-mail to this address, with the system&apos;s program for that?</source>
        <translation>Eine E-Mail an diese Adresse schreiben, mit dem Programm des Systems dafür?</translation>
    </message>
    <message>
        <source>Write how the answer begins: the model continues from there. Esc leaves it.</source>
        <translation>Schreiben, wie die Antwort beginnt: Das Modell setzt sie fort. Esc bricht ab.</translation>
    </message>
    <message>
        <source>Write the first words of an answer, and let the model go on from them</source>
        <translation>Die ersten Worte einer Antwort schreiben und das Modell von da an weiterschreiben lassen</translation>
    </message>
    <message>
        <source>Write the message first; then several can answer it.</source>
        <translation>Zuerst die Nachricht schreiben; dann sind mehrere Antworten darauf möglich.</translation>
    </message>
    <message>
        <source>You</source>
        <comment>the person who wrote a message</comment>
        <translation>Sie</translation>
    </message>
    <message>
        <source>Your question will be sent when the measurement is finished.</source>
        <translation>Ihre Frage wird gesendet, wenn die Messung beendet ist.</translation>
    </message>
    <message>
        <source>Your question will be sent when the model is ready.</source>
        <translation>Ihre Frage wird gesendet, wenn das Modell bereit ist.</translation>
    </message>
    <message>
        <source>[{left:,} more characters, which the model reads too, are not shown here]</source>
        <translation>[{left:,} weitere Zeichen, die das Modell auch liest, werden hier nicht gezeigt]</translation>
    </message>
    <message>
        <source>context {used:,} / {limit:,}</source>
        <translation>Kontext {used:,} / {limit:,}</translation>
    </message>
    <message>
        <source>context {used:,} / {limit:,} tokens.</source>
        <translation>Kontext {used:,} / {limit:,} Token.</translation>
    </message>
    <message>
        <source>continued</source>
        <translation>fortgesetzt</translation>
    </message>
    <message>
        <source>continued after {chars:,} characters, which are of {model}; all figures are those of the last part</source>
        <translation>fortgesetzt nach {chars:,} Zeichen, die von {model} sind; alle Zahlen gelten für den letzten Teil</translation>
    </message>
    <message>
        <source>continued after {chars:,} characters, which are yours; all figures are those of the last part</source>
        <translation>fortgesetzt nach {chars:,} Zeichen, die von Ihnen sind; alle Zahlen gelten für den letzten Teil</translation>
    </message>
    <message>
        <source>continued after {chars:,} characters; all figures are those of the last part</source>
        <translation>fortgesetzt nach {chars:,} Zeichen; alle Zahlen gelten für den letzten Teil</translation>
    </message>
    <message>
        <source>differs {where}: {one} / {other}</source>
        <translation>anders {where}: {one} / {other}</translation>
    </message>
    <message>
        <source>draft rejected, model&apos;s token</source>
        <translation>Entwurf abgelehnt, Token des Modells</translation>
    </message>
    <message>
        <source>drafted and accepted</source>
        <translation>entworfen und angenommen</translation>
    </message>
    <message>
        <source>drop the middle</source>
        <translation>Mitte weglassen</translation>
    </message>
    <message>
        <source>edited</source>
        <translation>bearbeitet</translation>
    </message>
    <message>
        <source>failed</source>
        <translation>fehlgeschlagen</translation>
    </message>
    <message>
        <source>from the folder</source>
        <translation>aus dem Ordner</translation>
    </message>
    <message>
        <source>generated by the model</source>
        <translation>vom Modell erzeugt</translation>
    </message>
    <message>
        <source>interrupted</source>
        <translation>unterbrochen</translation>
    </message>
    <message>
        <source>length limit</source>
        <translation>Längengrenze</translation>
    </message>
    <message>
        <source>loading {name}: {stage} {share:.0%}</source>
        <translation>{name} wird geladen: {stage} {share:.0%}</translation>
    </message>
    <message>
        <source>no limit</source>
        <translation>unbegrenzt</translation>
    </message>
    <message>
        <source>no text</source>
        <translation>kein Text</translation>
    </message>
    <message>
        <source>off</source>
        <translation>aus</translation>
    </message>
    <message>
        <source>one of several answers: {heading}</source>
        <translation>eine von mehreren Antworten: {heading}</translation>
    </message>
    <message>
        <source>one per line</source>
        <translation>einer je Zeile</translation>
    </message>
    <message>
        <source>out of memory</source>
        <translation>Speicher erschöpft</translation>
    </message>
    <message>
        <source>prompt: {cached:,} cached + {new:,} new tokens</source>
        <translation>Prompt: {cached:,} aus dem Cache + {new:,} neue Token</translation>
    </message>
    <message>
        <source>read again from token {token:,}</source>
        <translation>ab Token {token:,} neu gelesen</translation>
    </message>
    <message>
        <source>reading the prompt {done:,} / {total:,}</source>
        <translation>Prompt wird gelesen {done:,} / {total:,}</translation>
    </message>
    <message>
        <source>reading {name} by meaning, {done:,} of {count:,} passages</source>
        <translation>{name} wird nach Bedeutung gelesen, {done:,} von {count:,} Abschnitten</translation>
    </message>
    <message>
        <source>reading…</source>
        <translation>wird gelesen…</translation>
    </message>
    <message>
        <source>ready</source>
        <translation>bereit</translation>
    </message>
    <message>
        <source>same text</source>
        <translation>gleicher Text</translation>
    </message>
    <message>
        <source>same text as far as it went</source>
        <translation>gleicher Text, so weit er kam</translation>
    </message>
    <message>
        <source>same text as far as the first one went</source>
        <translation>gleicher Text, so weit der erste kam</translation>
    </message>
    <message>
        <source>searching {name}</source>
        <translation>{name} wird durchsucht</translation>
    </message>
    <message>
        <source>seed {seed}</source>
        <translation>Startwert {seed}</translation>
    </message>
    <message>
        <source>set back {times} times for want of memory</source>
        <translation>{times}-mal aus Speichermangel zurückgestellt</translation>
    </message>
    <message>
        <source>sliding window</source>
        <translation>gleitendes Fenster</translation>
    </message>
    <message>
        <source>stop</source>
        <comment>what happens when the context is full</comment>
        <translation>anhalten</translation>
    </message>
    <message>
        <source>stopped</source>
        <translation>gestoppt</translation>
    </message>
    <message>
        <source>the context is full</source>
        <translation>der Kontext ist voll</translation>
    </message>
    <message>
        <source>thinking differs {where}: {one} / {other}</source>
        <translation>Nachdenken anders {where}: {one} / {other}</translation>
    </message>
    <message>
        <source>time to first token (TTFT) {time}</source>
        <translation>Zeit bis zum ersten Token (TTFT) {time}</translation>
    </message>
    <message>
        <source>tool calling differs {where}: {one} / {other}</source>
        <translation>Werkzeugaufruf anders {where}: {one} / {other}</translation>
    </message>
    <message>
        <source>waiting for the first token</source>
        <translation>wartet auf das erste Token</translation>
    </message>
    <message>
        <source>your text, and not the model&apos;s</source>
        <translation>Ihr Text, nicht der des Modells</translation>
    </message>
    <message numerus="yes">
        <source>{accepted:,} of {n:,} drafted tokens accepted</source>
        <translation>
            <numerusform>{accepted:,} von 1 entworfenen Token angenommen</numerusform>
            <numerusform>{accepted:,} von {n:,} entworfenen Token angenommen</numerusform>
        </translation>
    </message>
    <message>
        <source>{before:,.1f} → {after:,.1f} tok/s</source>
        <translation>{before:,.1f} → {after:,.1f} tok/s</translation>
    </message>
    <message>
        <source>{cached:,} of {prompt:,} cached</source>
        <translation>{cached:,} von {prompt:,} im Cache</translation>
    </message>
    <message>
        <source>{cached:,} of {prompt:,} tokens from the cache</source>
        <translation>{cached:,} von {prompt:,} Token aus dem Cache</translation>
    </message>
    <message>
        <source>{count:.1f} tokens a step</source>
        <translation>{count:.1f} Token je Schritt</translation>
    </message>
    <message>
        <source>{count} models that suit this computer, each with its strengths, or any on Hugging Face.</source>
        <translation>{count} Modelle, die zu diesem Computer passen, jedes mit seinen Stärken, oder ein beliebiges von Hugging Face.</translation>
    </message>
    <message>
        <source>{documents}, {tokens}. The context has {context:,}.</source>
        <translation>{documents}, {tokens}. Der Kontext hat {context:,}.</translation>
    </message>
    <message>
        <source>{model} on this computer</source>
        <translation>{model} auf diesem Computer</translation>
    </message>
    <message>
        <source>{model} on {server}</source>
        <translation>{model} auf {server}</translation>
    </message>
    <message>
        <source>{model} on {server}; counts are that server&apos;s, times are from here</source>
        <translation>{model} auf {server}; Zählungen vom Server, Zeiten von hier</translation>
    </message>
    <message>
        <source>{model} with the adapter {adapter}</source>
        <translation>{model} mit dem Adapter {adapter}</translation>
    </message>
    <message numerus="yes">
        <source>{n:,} characters</source>
        <translation>
            <numerusform>1 Zeichen</numerusform>
            <numerusform>{n:,} Zeichen</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n:,} documents</source>
        <translation>
            <numerusform>1 Dokument</numerusform>
            <numerusform>{n:,} Dokumente</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n:,} documents of “{folder}”</source>
        <translation>
            <numerusform>1 Dokument aus „{folder}“</numerusform>
            <numerusform>{n:,} Dokumente aus „{folder}“</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n:,} forward passes saved</source>
        <translation>
            <numerusform>1 Durchlauf gespart</numerusform>
            <numerusform>{n:,} Durchläufe gespart</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n:,} forward passes saved: {rate:.1f} tokens per step, where a step without speculation gives one token</source>
        <translation>
            <numerusform>1 Durchlauf gespart: {rate:.1f} Token je Schritt, wo ein Schritt ohne Spekulation ein Token ergibt</numerusform>
            <numerusform>{n:,} Durchläufe gespart: {rate:.1f} Token je Schritt, wo ein Schritt ohne Spekulation ein Token ergibt</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n:,} matches</source>
        <translation>
            <numerusform>1 Treffer</numerusform>
            <numerusform>{n:,} Treffer</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n:,} passages of {of:,} sent, as the whole ({tokens:,} tokens) does not fit the context</source>
        <translation>
            <numerusform>1 Abschnitt von {of:,} gesendet, da das Ganze ({tokens:,} Token) nicht in den Kontext passt</numerusform>
            <numerusform>{n:,} Abschnitte von {of:,} gesendet, da das Ganze ({tokens:,} Token) nicht in den Kontext passt</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n:,} pictures</source>
        <translation>
            <numerusform>1 Bild</numerusform>
            <numerusform>{n:,} Bilder</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n:,} steps in {seconds:.2f} s, {queued:.0f} ms in the queue</source>
        <translation>
            <numerusform>1 Schritt in {seconds:.2f} s, {queued:.0f} ms in der Warteschlange</numerusform>
            <numerusform>{n:,} Schritte in {seconds:.2f} s, {queued:.0f} ms in der Warteschlange</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n:,} tokens</source>
        <translation>
            <numerusform>1 Token</numerusform>
            <numerusform>{n:,} Token</numerusform>
        </translation>
    </message>
    <message>
        <source>{name} (changed)</source>
        <translation>{name} (geändert)</translation>
    </message>
    <message>
        <source>{name} (not loaded)</source>
        <translation>{name} (nicht geladen)</translation>
    </message>
    <message>
        <source>{name} (not there)</source>
        <translation>{name} (nicht vorhanden)</translation>
    </message>
    <message>
        <source>{name} cannot be read as a picture ({why}).</source>
        <translation>{name} lässt sich nicht als Bild lesen ({why}).</translation>
    </message>
    <message>
        <source>{name} cannot be read: it takes too much memory or time, or the file is damaged.</source>
        <translation>{name} lässt sich nicht lesen: Das braucht zu viel Speicher oder Zeit, oder die Datei ist beschädigt.</translation>
    </message>
    <message>
        <source>{name} has {width:,} x {height:,} pixels, and a picture can have {most:,}. Make it smaller first.</source>
        <translation>{name} hat {width:,} x {height:,} Pixel, ein Bild kann {most:,} haben. Zuerst verkleinern.</translation>
    </message>
    <message>
        <source>{name} is in the folder already.</source>
        <translation>{name} ist schon im Ordner.</translation>
    </message>
    <message>
        <source>{name} is loaded and answers on this computer.</source>
        <translation>{name} ist geladen und antwortet auf diesem Computer.</translation>
    </message>
    <message>
        <source>{name} reads text only, so a message to it can have no pictures.</source>
        <translation>{name} liest nur Text, daher kann eine Nachricht daran keine Bilder haben.</translation>
    </message>
    <message>
        <source>{name} takes a number from {low:,} to {high:,}.</source>
        <translation>{name}: eine Zahl von {low:,} bis {high:,} eingeben.</translation>
    </message>
    <message>
        <source>{name} takes a whole number from {low:,} to {high:,}.</source>
        <translation>{name}: eine ganze Zahl von {low:,} bis {high:,} eingeben.</translation>
    </message>
    <message>
        <source>{name} · may it run?</source>
        <translation>{name} · ausführen?</translation>
    </message>
    <message>
        <source>{name} · running…</source>
        <translation>{name} · läuft…</translation>
    </message>
    <message>
        <source>{name}, folded</source>
        <translation>{name}, zugeklappt</translation>
    </message>
    <message>
        <source>{name}, unfolded</source>
        <translation>{name}, aufgeklappt</translation>
    </message>
    <message>
        <source>{name}: rank {rank}, {size}</source>
        <translation>{name}: Rang {rank}, {size}</translation>
    </message>
    <message>
        <source>{number:,} of {total:,}</source>
        <translation>{number:,} von {total:,}</translation>
    </message>
    <message numerus="yes">
        <source>{n} notes</source>
        <translation>
            <numerusform>1 Hinweis</numerusform>
            <numerusform>{n} Hinweise</numerusform>
        </translation>
    </message>
    <message>
        <source>{rate:,.1f} tok/s</source>
        <translation>{rate:,.1f} tok/s</translation>
    </message>
    <message>
        <source>{rate:.1f} tokens per step</source>
        <translation>{rate:.1f} Token je Schritt</translation>
    </message>
    <message>
        <source>{reason}. What you send now waits for it.</source>
        <translation>{reason}. Was Sie jetzt senden, wartet darauf.</translation>
    </message>
    <message>
        <source>{result} of {tool}</source>
        <translation>{result} von {tool}</translation>
    </message>
    <message>
        <source>{share:.0%} of the context is taken by this conversation.</source>
        <translation>{share:.0%} des Kontexts belegt diese Unterhaltung.</translation>
    </message>
    <message>
        <source>{share:.0f} % of drafts accepted</source>
        <translation>{share:.0f} % der Entwürfe angenommen</translation>
    </message>
    <message>
        <source>{time:,.0f} ms</source>
        <translation>{time:,.0f} ms</translation>
    </message>
    <message>
        <source>{time:,.1f} s</source>
        <translation>{time:,.1f} s</translation>
    </message>
    <message>
        <source>{tokens:,} tokens</source>
        <translation>{tokens:,} Token</translation>
    </message>
    <message>
        <source>{tokens:,} tokens after a prompt of {prompt:,}</source>
        <translation>{tokens:,} Token nach einem Prompt von {prompt:,}</translation>
    </message>
    <message>
        <source>{tokens:,} tokens kept</source>
        <translation>{tokens:,} Token vorgehalten</translation>
    </message>
    <message>
        <source>{tokens:,} tokens read by the model</source>
        <translation>{tokens:,} Token vom Modell gelesen</translation>
    </message>
    <message>
        <source>{tokens:,} tokens, {thinking:,} of them thinking, after a prompt of {prompt:,}</source>
        <translation>{tokens:,} Token, davon {thinking:,} Nachdenken, nach einem Prompt von {prompt:,}</translation>
    </message>
    <message>
        <source>{tokens} and passages</source>
        <translation>{tokens} und Abschnitte</translation>
    </message>
    <message>
        <source>{used:,} of {whole:,} documents of “{folder}”</source>
        <translation>{used:,} von {whole:,} Dokumenten aus „{folder}“</translation>
    </message>
    <message>
        <source>{who} (edited)</source>
        <translation>{who} (bearbeitet)</translation>
    </message>
    <message>
        <source>{who} (the model no longer sees this)</source>
        <translation>{who} (das Modell sieht dies nicht mehr)</translation>
    </message>
    <message>
        <source>“{typed}” is not in force; it stays at its default.</source>
        <translation>„{typed}“ gilt nicht; es bleibt bei der Vorgabe.</translation>
    </message>
    <message>
        <source>“{typed}” is not in force; it stays at {value}.</source>
        <translation>„{typed}“ gilt nicht; es bleibt bei {value}.</translation>
    </message>
</context>
</TS>
