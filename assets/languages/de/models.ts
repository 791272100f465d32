<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de" sourcelanguage="en">
<context>
    <name>kvasir</name>
    <message>
        <source>10B to 20B</source>
        <translation>10B bis 20B</translation>
    </message>
    <message>
        <source>20B to 40B</source>
        <translation>20B bis 40B</translation>
    </message>
    <message>
        <source>2B to 5B</source>
        <translation>2B bis 5B</translation>
    </message>
    <message>
        <source>4-bit (bitsandbytes): 16 levels, spaced to match typical weights.</source>
        <translation>4 Bit (bitsandbytes): 16 Stufen in Abständen, die zu üblichen Gewichten passen.</translation>
    </message>
    <message>
        <source>4-bit, group size 128. Rounding errors are corrected as it goes, so quality stays close to the original.</source>
        <translation>4 Bit, Gruppen von 128. Rundungsfehler werden laufend ausgeglichen, die Qualität bleibt daher nah am Original.</translation>
    </message>
    <message>
        <source>4-bit, group size 128. The channels that matter most are scaled up before they are rounded.</source>
        <translation>4 Bit, Gruppen von 128. Die wichtigsten Kanäle werden vor dem Runden vergrößert.</translation>
    </message>
    <message>
        <source>5B to 10B</source>
        <translation>5B bis 10B</translation>
    </message>
    <message>
        <source>8 bits a weight: a model this small loses more with fewer, and saves little.</source>
        <translation>8 Bit je Gewicht: Mit weniger verliert ein so kleines Modell mehr und spart kaum etwas.</translation>
    </message>
    <message>
        <source>8-bit (compressed-tensors): evenly spaced levels, with one scale per row.</source>
        <translation>8 Bit (compressed-tensors): gleichmäßige Stufen mit einer Skala je Zeile.</translation>
    </message>
    <message>
        <source>A GGUF file, or the folder of a model in safetensors, GPTQ, AWQ or NF4.</source>
        <translation>Eine GGUF-Datei oder der Ordner eines Modells als safetensors, GPTQ, AWQ oder NF4.</translation>
    </message>
    <message>
        <source>A text for the tokenizer</source>
        <translation>Ein Text für den Tokenizer</translation>
    </message>
    <message>
        <source>About {rate} tokens/s, reading {prefill}, {source}.</source>
        <translation>Etwa {rate} Token/s, beim Lesen {prefill}, {source}.</translation>
    </message>
    <message>
        <source>About {rate} tokens/s, {source}.</source>
        <translation>Etwa {rate} Token/s, {source}.</translation>
    </message>
    <message>
        <source>Add a folder…</source>
        <translation>Ordner hinzufügen…</translation>
    </message>
    <message>
        <source>Add a model</source>
        <translation>Modell hinzufügen</translation>
    </message>
    <message>
        <source>Add a model…</source>
        <translation>Modell hinzufügen…</translation>
    </message>
    <message>
        <source>Add a server</source>
        <translation>Server hinzufügen</translation>
    </message>
    <message>
        <source>Address of the server</source>
        <translation>Adresse des Servers</translation>
    </message>
    <message>
        <source>Address, e.g. https://example.org/v1</source>
        <translation>Adresse: https://example.org/v1</translation>
    </message>
    <message>
        <source>Answer on this machine again</source>
        <translation>Wieder auf diesem Computer antworten</translation>
    </message>
    <message>
        <source>Any server that speaks OpenAI&apos;s API: another Kvasir, vLLM, SGLang, llama.cpp, Ray Serve. What you ask its models is sent there. Its key is kept where the system keeps passwords, and told to nobody else.</source>
        <translation>Jeder Server, der OpenAIs API spricht: ein anderes Kvasir, vLLM, SGLang, llama.cpp, Ray Serve. Was seine Modelle gefragt werden, wird dorthin gesendet. Sein Schlüssel liegt dort, wo das System Passwörter aufbewahrt, und geht an niemand anderen.</translation>
    </message>
    <message>
        <source>Architecture</source>
        <translation>Architektur</translation>
    </message>
    <message>
        <source>As for all models</source>
        <translation>Wie für alle Modelle</translation>
    </message>
    <message>
        <source>Asking for its models…</source>
        <translation>Seine Modelle werden abgefragt…</translation>
    </message>
    <message>
        <source>Asking the hub what is in it…</source>
        <translation>Der Hub wird nach dem Inhalt gefragt…</translation>
    </message>
    <message>
        <source>Asking the server for its models…</source>
        <translation>Der Server wird nach seinen Modellen gefragt…</translation>
    </message>
    <message>
        <source>Back to the models</source>
        <translation>Zurück zu den Modellen</translation>
    </message>
    <message>
        <source>Built-in</source>
        <translation>Eingebaut</translation>
    </message>
    <message>
        <source>Calibrated on a text: it takes minutes to hours.</source>
        <translation>Mit einem Text kalibriert: dauert Minuten bis Stunden.</translation>
    </message>
    <message>
        <source>Calibration text</source>
        <translation>Kalibriertext</translation>
    </message>
    <message>
        <source>Calibration text: path of a file</source>
        <translation>Kalibriertext: Pfad einer Datei</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>Abbrechen</translation>
    </message>
    <message>
        <source>Cancel loading</source>
        <translation>Laden abbrechen</translation>
    </message>
    <message>
        <source>Cancel loading the model</source>
        <translation>Das Laden des Modells abbrechen</translation>
    </message>
    <message>
        <source>Chat</source>
        <comment>the verb on a button</comment>
        <translation>Chatten</translation>
    </message>
    <message>
        <source>Chat template</source>
        <translation>Chatvorlage</translation>
    </message>
    <message>
        <source>Chat with {model} on {server}</source>
        <translation>Mit {model} auf {server} chatten</translation>
    </message>
    <message>
        <source>Chats that use a model of {name} keep their texts, and ask for another model.</source>
        <translation>Chats mit einem Modell von {name} behalten ihre Texte und verlangen ein anderes Modell.</translation>
    </message>
    <message>
        <source>Checking what can draft for it…</source>
        <translation>Es wird geprüft, was dafür entwerfen kann…</translation>
    </message>
    <message>
        <source>Checking whether they fit…</source>
        <translation>Es wird geprüft, ob sie passen…</translation>
    </message>
    <message>
        <source>Choose a draft model or {kinds} heads…</source>
        <translation>Entwurfsmodell oder {kinds}-Köpfe wählen…</translation>
    </message>
    <message>
        <source>Choose a draft model, or {kinds} heads</source>
        <translation>Entwurfsmodell oder {kinds}-Köpfe wählen</translation>
    </message>
    <message>
        <source>Choose a file of calibration text</source>
        <translation>Eine Datei mit Kalibriertext wählen</translation>
    </message>
    <message>
        <source>Choose a model</source>
        <translation>Modell wählen</translation>
    </message>
    <message>
        <source>Choose…</source>
        <translation>Wählen…</translation>
    </message>
    <message>
        <source>Close</source>
        <translation>Schließen</translation>
    </message>
    <message>
        <source>Context</source>
        <translation>Kontext</translation>
    </message>
    <message>
        <source>Context length in tokens</source>
        <translation>Kontextlänge in Token</translation>
    </message>
    <message>
        <source>Delete</source>
        <translation>Löschen</translation>
    </message>
    <message>
        <source>Delete a model</source>
        <translation>Modell löschen</translation>
    </message>
    <message>
        <source>Delete {name} from this machine? {size} become free.</source>
        <translation>{name} von diesem Computer löschen? {size} werden frei.</translation>
    </message>
    <message>
        <source>Details</source>
        <translation>Details</translation>
    </message>
    <message>
        <source>Device</source>
        <translation>Gerät</translation>
    </message>
    <message>
        <source>Discard</source>
        <translation>Verwerfen</translation>
    </message>
    <message>
        <source>Discard what is being made</source>
        <translation>Entstehendes Modell verwerfen</translation>
    </message>
    <message>
        <source>Discard {title}? What was done of it is deleted.</source>
        <translation>{title} verwerfen? Was davon fertig ist, wird gelöscht.</translation>
    </message>
    <message>
        <source>Disk</source>
        <translation>Speicherplatz</translation>
    </message>
    <message>
        <source>Download</source>
        <translation>Herunterladen</translation>
    </message>
    <message>
        <source>Download models to it</source>
        <translation>Modelle hierhin laden</translation>
    </message>
    <message>
        <source>Downloading…</source>
        <translation>Wird geladen…</translation>
    </message>
    <message>
        <source>Draft model or heads</source>
        <translation>Entwurfsmodell oder Köpfe</translation>
    </message>
    <message>
        <source>Draft: {name}</source>
        <translation>Entwurf: {name}</translation>
    </message>
    <message>
        <source>Drafts</source>
        <translation>Entwürfe</translation>
    </message>
    <message>
        <source>Estimated from its size; a search shows what its files take.</source>
        <translation>Aus der Größe geschätzt; eine Suche zeigt, was die Dateien belegen.</translation>
    </message>
    <message>
        <source>Files</source>
        <translation>Dateien</translation>
    </message>
    <message>
        <source>Find on Hugging Face</source>
        <translation>Auf Hugging Face suchen</translation>
    </message>
    <message>
        <source>Fits this machine</source>
        <translation>Passt auf diesen Computer</translation>
    </message>
    <message>
        <source>Folders</source>
        <translation>Ordner</translation>
    </message>
    <message>
        <source>Forget</source>
        <translation>Vergessen</translation>
    </message>
    <message>
        <source>Forget a model</source>
        <translation>Modell vergessen</translation>
    </message>
    <message>
        <source>Forget {name}? It is not there any more.</source>
        <translation>{name} vergessen? Es ist nicht mehr da.</translation>
    </message>
    <message>
        <source>Forget {name}? Its files stay where they are, in {path}.</source>
        <translation>{name} vergessen? Die Dateien bleiben, wo sie sind, in {path}.</translation>
    </message>
    <message>
        <source>Format</source>
        <translation>Format</translation>
    </message>
    <message>
        <source>From</source>
        <translation>Von</translation>
    </message>
    <message>
        <source>Get</source>
        <translation>Holen</translation>
    </message>
    <message>
        <source>Get a model…</source>
        <translation>Modell holen…</translation>
    </message>
    <message>
        <source>Get the draft</source>
        <translation>Entwurf holen</translation>
    </message>
    <message>
        <source>Goes to</source>
        <translation>Ziel</translation>
    </message>
    <message>
        <source>Heads</source>
        <translation>Köpfe</translation>
    </message>
    <message>
        <source>How far a layer&apos;s outputs on the calibration text are from the original&apos;s, as a share of them (sums of squares), the worst layer first; and how far they would be had each weight only been rounded to the nearest level.</source>
        <translation>Wie weit die Ausgaben einer Schicht beim Kalibriertext von denen des Originals abweichen, als Anteil davon (Quadratsummen), die schlechteste Schicht zuerst; und wie weit, wäre jedes Gewicht nur zur nächsten Stufe gerundet worden.</translation>
    </message>
    <message>
        <source>In progress</source>
        <translation>In Arbeit</translation>
    </message>
    <message>
        <source>It brings no chat template.</source>
        <translation>Das Modell bringt keine Chatvorlage mit.</translation>
    </message>
    <message>
        <source>It can be downloaded again.</source>
        <translation>Es lässt sich erneut herunterladen.</translation>
    </message>
    <message>
        <source>It can be made again.</source>
        <translation>Es lässt sich erneut erstellen.</translation>
    </message>
    <message>
        <source>It drafts tokens that the model then checks several at a time (speculation).</source>
        <translation>Entwirft Token, die das Modell dann mehrere auf einmal prüft (spekulatives Decodieren).</translation>
    </message>
    <message>
        <source>It is downloaded after the others.</source>
        <translation>Wird nach den anderen heruntergeladen.</translation>
    </message>
    <message>
        <source>It is loaded.</source>
        <translation>Ist geladen.</translation>
    </message>
    <message>
        <source>It is not there.</source>
        <translation>Ist nicht da.</translation>
    </message>
    <message>
        <source>It is on its way.</source>
        <translation>Ist unterwegs.</translation>
    </message>
    <message>
        <source>It is on this machine.</source>
        <translation>Ist auf diesem Computer.</translation>
    </message>
    <message>
        <source>It offers {count:,} models.</source>
        <translation>Er bietet {count:,} Modelle an.</translation>
    </message>
    <message>
        <source>It stops at a point that it can continue from.</source>
        <translation>Es hält an einer Stelle an, von der aus es weitergehen kann.</translation>
    </message>
    <message>
        <source>It takes about {size} with a chat of the usual length.</source>
        <translation>Mit einem Chat üblicher Länge belegt es etwa {size}.</translation>
    </message>
    <message>
        <source>It takes {share} of the room. The {tokens:,} tokens that it was measured on are too few to say what it lost.</source>
        <translation>Es belegt {share} des Platzes. Die {tokens:,} Token der Messung sind zu wenige, um zu sagen, was verloren ging.</translation>
    </message>
    <message>
        <source>It takes {share} of the room; its perplexity is the same, and it picks a different top token {other} of the time.</source>
        <translation>Es belegt {share} des Platzes; die Perplexität ist gleich, und in {other} der Fälle liegt ein anderes Token vorn.</translation>
    </message>
    <message>
        <source>It takes {share} of the room; its perplexity is {fall:.1f} % lower, and it picks a different top token {other} of the time.</source>
        <translation>Es belegt {share} des Platzes; die Perplexität ist {fall:.1f} % niedriger, und in {other} der Fälle liegt ein anderes Token vorn.</translation>
    </message>
    <message>
        <source>It takes {share} of the room; its perplexity is {rise:.1f} % higher, and it picks a different top token {other} of the time.</source>
        <translation>Es belegt {share} des Platzes; die Perplexität ist {rise:.1f} % höher, und in {other} der Fälle liegt ein anderes Token vorn.</translation>
    </message>
    <message>
        <source>It takes {share} of the room; what it lost was not measured.</source>
        <translation>Es belegt {share} des Platzes; was verloren ging, wurde nicht gemessen.</translation>
    </message>
    <message>
        <source>Its download is paused: resume it under In progress, below.</source>
        <translation>Der Download ist angehalten: fortsetzen unter „In Arbeit“ unten.</translation>
    </message>
    <message>
        <source>KL divergence</source>
        <translation>KL-Divergenz</translation>
    </message>
    <message>
        <source>KV cache precision</source>
        <translation>KV-Genauigkeit</translation>
    </message>
    <message>
        <source>Kept for the next load, and broken off</source>
        <translation>Fürs nächste Laden Aufgehobenes und Abgebrochenes</translation>
    </message>
    <message>
        <source>Key of the server</source>
        <translation>Schlüssel des Servers</translation>
    </message>
    <message>
        <source>Key, if it asks for one</source>
        <translation>ggf. Schlüssel</translation>
    </message>
    <message>
        <source>Kvasir was made of the wisdom of gods, and knew an answer to every question.</source>
        <translation>Kvasir entstand aus der Weisheit der Götter und wusste auf jede Frage eine Antwort.</translation>
    </message>
    <message>
        <source>Kvasir&apos;s manual</source>
        <translation>Kvasirs Handbuch</translation>
    </message>
    <message>
        <source>Kvasir&apos;s models, next to the downloaded ones; the original stays</source>
        <translation>Kvasirs Modelle, neben den heruntergeladenen; das Original bleibt</translation>
    </message>
    <message>
        <source>Layers</source>
        <translation>Schichten</translation>
    </message>
    <message>
        <source>Licence</source>
        <translation>Lizenz</translation>
    </message>
    <message>
        <source>Load</source>
        <translation>Laden</translation>
    </message>
    <message>
        <source>Load settings of {name}</source>
        <translation>Ladeeinstellungen von {name}</translation>
    </message>
    <message>
        <source>Load settings…</source>
        <translation>Ladeeinstellungen…</translation>
    </message>
    <message>
        <source>Load with it</source>
        <translation>Damit laden</translation>
    </message>
    <message>
        <source>Load {name}</source>
        <translation>{name} laden</translation>
    </message>
    <message>
        <source>Loading {name}: {stage}</source>
        <translation>{name} wird geladen: {stage}</translation>
    </message>
    <message>
        <source>Look for models in</source>
        <translation>Modelle suchen in</translation>
    </message>
    <message>
        <source>Look for models in another folder, and below it.</source>
        <translation>Auch in einem anderen Ordner und darunter nach Modellen suchen.</translation>
    </message>
    <message>
        <source>Look here no more</source>
        <translation>Hier nicht mehr suchen</translation>
    </message>
    <message>
        <source>Looking for models on this computer…</source>
        <translation>Modelle auf diesem Computer werden gesucht…</translation>
    </message>
    <message>
        <source>Looking into {path}…</source>
        <translation>{path} wird durchgesehen…</translation>
    </message>
    <message>
        <source>Make</source>
        <translation>Erstellen</translation>
    </message>
    <message>
        <source>Make a smaller model of {name}</source>
        <translation>Aus {name} ein kleineres Modell erstellen</translation>
    </message>
    <message>
        <source>Make smaller…</source>
        <translation>Verkleinern…</translation>
    </message>
    <message>
        <source>Memory allows about {rate:.2g} tokens a second without speculation.</source>
        <translation>Der Speicher erlaubt ohne Spekulation etwa {rate:.2g} Token je Sekunde.</translation>
    </message>
    <message>
        <source>Metadata</source>
        <translation>Metadaten</translation>
    </message>
    <message>
        <source>Model: {name}</source>
        <translation>Modell: {name}</translation>
    </message>
    <message>
        <source>Models</source>
        <translation>Modelle</translation>
    </message>
    <message>
        <source>Models to begin with, those that suit this computer best first. Or search for any other.</source>
        <translation>Modelle für den Anfang, die für diesen Computer besten zuerst. Oder nach anderen suchen.</translation>
    </message>
    <message>
        <source>Move</source>
        <translation>Verschieben</translation>
    </message>
    <message>
        <source>Move all models to an empty folder</source>
        <translation>Alle Modelle in einen leeren Ordner verschieben</translation>
    </message>
    <message>
        <source>Move all to another folder…</source>
        <translation>Alle verschieben…</translation>
    </message>
    <message>
        <source>Move the models</source>
        <translation>Modelle verschieben</translation>
    </message>
    <message>
        <source>Move {size} from {source} to {target}? Every file is copied and compared before the first one is deleted. Load no model meanwhile.</source>
        <translation>{size} von {source} nach {target} verschieben? Jede Datei wird kopiert und verglichen, bevor die erste gelöscht wird. Währenddessen bitte kein Modell laden.</translation>
    </message>
    <message>
        <source>Moving the models to {path}: {done} of {total}</source>
        <translation>Die Modelle werden nach {path} verschoben: {done} von {total}</translation>
    </message>
    <message>
        <source>Name of the server</source>
        <translation>Name des Servers</translation>
    </message>
    <message>
        <source>Name, if not its host&apos;s</source>
        <translation>ggf. Name</translation>
    </message>
    <message>
        <source>No calibration: it takes seconds to minutes.</source>
        <translation>Ohne Kalibrierung: dauert Sekunden bis Minuten.</translation>
    </message>
    <message>
        <source>No draft</source>
        <translation>Kein Entwurf</translation>
    </message>
    <message>
        <source>No draft model or heads for it are on this machine. N-grams and some of its own layers draft for it without any.</source>
        <translation>Auf diesem Computer ist dafür kein Entwurfsmodell und sind keine Köpfe. N-Gramme und einige seiner eigenen Schichten entwerfen auch so.</translation>
    </message>
    <message>
        <source>No model is loaded.</source>
        <translation>Kein Modell ist geladen.</translation>
    </message>
    <message>
        <source>No server yet.</source>
        <translation>Noch kein Server.</translation>
    </message>
    <message>
        <source>None</source>
        <comment>no draft</comment>
        <translation>Keines</translation>
    </message>
    <message>
        <source>None</source>
        <comment>no preset</comment>
        <translation>Keine</translation>
    </message>
    <message>
        <source>Note</source>
        <translation>Hinweis</translation>
    </message>
    <message>
        <source>Nothing brings it back.</source>
        <translation>Danach ist es endgültig weg.</translation>
    </message>
    <message>
        <source>Nothing is found. Try fewer words.</source>
        <translation>Nichts gefunden. Weniger Wörter helfen vielleicht.</translation>
    </message>
    <message>
        <source>On the disk</source>
        <translation>Auf der Platte</translation>
    </message>
    <message>
        <source>On this machine</source>
        <translation>Auf diesem Computer</translation>
    </message>
    <message>
        <source>Only models that fit into what is free now when they are packed in 4 bits.</source>
        <translation>Nur Modelle, die mit 4 Bit je Gewicht in den jetzt freien Speicher passen.</translation>
    </message>
    <message>
        <source>Open a file…</source>
        <translation>Datei öffnen…</translation>
    </message>
    <message>
        <source>Open a model</source>
        <translation>Modell öffnen</translation>
    </message>
    <message>
        <source>Open it now</source>
        <translation>Jetzt öffnen</translation>
    </message>
    <message>
        <source>Opening {name}</source>
        <translation>{name} zu öffnen</translation>
    </message>
    <message>
        <source>Other servers</source>
        <translation>Andere Server</translation>
    </message>
    <message>
        <source>Parameters</source>
        <translation>Parameter</translation>
    </message>
    <message>
        <source>Pause</source>
        <translation>Anhalten</translation>
    </message>
    <message>
        <source>Paused</source>
        <translation>Angehalten</translation>
    </message>
    <message>
        <source>Perplexity</source>
        <translation>Perplexität</translation>
    </message>
    <message>
        <source>Perplexity: how surprised a model is by the text; lower is better. KL divergence: how far the probabilities of the next token are from the original&apos;s; 0 is no difference. Same top token: how often both pick the same token first. Compare, in the Lab, tells how much faster it writes, in pairs of runs.</source>
        <translation>Perplexität: wie sehr der Text ein Modell überrascht; weniger ist besser. KL-Divergenz: wie weit die Wahrscheinlichkeiten des nächsten Tokens von denen des Originals abweichen; 0 ist kein Unterschied. Gleiches erstes Token: wie oft bei beiden dasselbe Token vorn liegt. Wie viel schneller es schreibt, sagt der Vergleich im Labor, in Paaren von Läufen.</translation>
    </message>
    <message>
        <source>Preset of new chats</source>
        <translation>Voreinstellung neuer Chats</translation>
    </message>
    <message>
        <source>Progress</source>
        <translation>Fortschritt</translation>
    </message>
    <message>
        <source>Progress of {title}</source>
        <translation>Fortschritt von {title}</translation>
    </message>
    <message>
        <source>Publisher</source>
        <translation>Herausgeber</translation>
    </message>
    <message>
        <source>Publisher, e.g. Qwen</source>
        <translation>Herausgeber, z. B. Qwen</translation>
    </message>
    <message>
        <source>Quantise 16-bit models on load</source>
        <translation>16-Bit-Modelle beim Laden quantisieren</translation>
    </message>
    <message>
        <source>Queued</source>
        <translation>Wartet</translation>
    </message>
    <message>
        <source>Reading its headers…</source>
        <translation>Die Kopfdaten werden gelesen…</translation>
    </message>
    <message>
        <source>Reload it now</source>
        <translation>Jetzt neu laden</translation>
    </message>
    <message>
        <source>Reloading {name}</source>
        <translation>{name} neu zu laden</translation>
    </message>
    <message>
        <source>Remove</source>
        <translation>Entfernen</translation>
    </message>
    <message>
        <source>Remove a server</source>
        <translation>Server entfernen</translation>
    </message>
    <message>
        <source>Remove {name}</source>
        <translation>{name} entfernen</translation>
    </message>
    <message>
        <source>Remove…</source>
        <translation>Entfernen…</translation>
    </message>
    <message>
        <source>Report</source>
        <translation>Bericht</translation>
    </message>
    <message>
        <source>Reset to defaults</source>
        <translation>Auf Standard zurücksetzen</translation>
    </message>
    <message>
        <source>Resume</source>
        <translation>Fortsetzen</translation>
    </message>
    <message>
        <source>Same top token</source>
        <translation>Gleiches erstes Token</translation>
    </message>
    <message>
        <source>Save</source>
        <translation>Speichern</translation>
    </message>
    <message>
        <source>Save and load</source>
        <translation>Speichern und laden</translation>
    </message>
    <message>
        <source>Save and reload</source>
        <translation>Speichern und neu laden</translation>
    </message>
    <message>
        <source>Search</source>
        <translation>Suchen</translation>
    </message>
    <message>
        <source>Search for models</source>
        <translation>Nach Modellen suchen</translation>
    </message>
    <message>
        <source>Search models, e.g. qwen3</source>
        <translation>Modelle suchen, z. B. qwen3</translation>
    </message>
    <message>
        <source>Searching…</source>
        <translation>Suche läuft…</translation>
    </message>
    <message>
        <source>Show files</source>
        <translation>Dateien zeigen</translation>
    </message>
    <message>
        <source>Show more</source>
        <translation>Mehr zeigen</translation>
    </message>
    <message>
        <source>Show {left} more</source>
        <translation>Noch {left} zeigen</translation>
    </message>
    <message>
        <source>Show {left} more, {large} of them too large for this machine</source>
        <translation>Noch {left} zeigen, {large} davon zu groß für diesen Computer</translation>
    </message>
    <message>
        <source>Size</source>
        <translation>Größe</translation>
    </message>
    <message>
        <source>Speculates with {heads}</source>
        <translation>Spekuliert mit: {heads}</translation>
    </message>
    <message>
        <source>Speculation helper</source>
        <translation>Spekulation mit</translation>
    </message>
    <message>
        <source>The engine is not running</source>
        <translation>Die Engine läuft nicht</translation>
    </message>
    <message>
        <source>The engine is restarting</source>
        <translation>Die Engine startet neu</translation>
    </message>
    <message>
        <source>The engine is starting</source>
        <translation>Die Engine startet</translation>
    </message>
    <message>
        <source>The largest that fits here, so the closest to the original.</source>
        <translation>Das größte, das hier passt, und damit am nächsten am Original.</translation>
    </message>
    <message>
        <source>The usual choice: about 4 bits a weight, at little loss of quality.</source>
        <translation>Die übliche Wahl: etwa 4 Bit je Gewicht bei wenig Verlust an Qualität.</translation>
    </message>
    <message>
        <source>There is no file {path}. Choose another, or leave it empty.</source>
        <translation>Die Datei {path} gibt es nicht. Bitte eine andere wählen oder das Feld leer lassen.</translation>
    </message>
    <message>
        <source>This format is made without a calibration text, so no layer&apos;s error was measured by itself.</source>
        <translation>Dieses Format entsteht ohne Kalibriertext, daher wurde der Fehler keiner Schicht für sich gemessen.</translation>
    </message>
    <message>
        <source>This text is not what the model was made for, so its perplexity says little.</source>
        <translation>Für solchen Text ist das Modell nicht gemacht, die Perplexität sagt daher wenig.</translation>
    </message>
    <message>
        <source>Tokenizer</source>
        <translation>Tokenizer</translation>
    </message>
    <message>
        <source>Tokens a second</source>
        <translation>Token je Sekunde</translation>
    </message>
    <message>
        <source>Tokens of the text</source>
        <translation>Token des Textes</translation>
    </message>
    <message>
        <source>Tokens that have room: {rooms}.</source>
        <translation>Platz für Token: {rooms}.</translation>
    </message>
    <message>
        <source>Try again</source>
        <translation>Erneut versuchen</translation>
    </message>
    <message>
        <source>Type</source>
        <translation>Typ</translation>
    </message>
    <message>
        <source>Type a text to see its tokens.</source>
        <translation>Text eingeben, um seine Token zu sehen.</translation>
    </message>
    <message>
        <source>Type of GGUF</source>
        <translation>GGUF-Typ</translation>
    </message>
    <message>
        <source>Unfinished downloads</source>
        <translation>Unfertige Downloads</translation>
    </message>
    <message>
        <source>Unload it now</source>
        <translation>Jetzt entladen</translation>
    </message>
    <message>
        <source>Unload the model</source>
        <translation>Modell entladen</translation>
    </message>
    <message>
        <source>Unloaded, because nothing was asked of it for a while. The next message loads it again.</source>
        <translation>Entladen, weil eine Weile nichts gefragt wurde. Die nächste Nachricht lädt es wieder.</translation>
    </message>
    <message>
        <source>Unloading {name}</source>
        <translation>{name} zu entladen</translation>
    </message>
    <message>
        <source>Use a model of another folder where it is. You can also drop it here.</source>
        <translation>Ein Modell aus einem anderen Ordner dort nutzen, wo es liegt. Es lässt sich auch hierher ziehen.</translation>
    </message>
    <message>
        <source>Vocabulary</source>
        <translation>Vokabular</translation>
    </message>
    <message>
        <source>Weights</source>
        <translation>Gewichte</translation>
    </message>
    <message>
        <source>What for</source>
        <translation>Wofür</translation>
    </message>
    <message>
        <source>What is set here holds whenever the window loads this model. The rest is as for all models, in Settings.</source>
        <translation>Was hier steht, gilt immer, wenn das Fenster dieses Modell lädt. Alles Übrige ist wie für alle Modelle, in den Einstellungen.</translation>
    </message>
    <message>
        <source>With {proposer}: {steps} tokens a step, {rate} tokens/s, from your runs of it.</source>
        <translation>Mit {proposer}: {steps} Token je Schritt, {rate} Token/s, aus bisherigen Läufen.</translation>
    </message>
    <message>
        <source>Worst layers</source>
        <translation>Schlechteste Schichten</translation>
    </message>
    <message>
        <source>about {size} (an estimate), now {now}</source>
        <translation>etwa {size} (geschätzt), jetzt {now}</translation>
    </message>
    <message>
        <source>all</source>
        <translation>alle</translation>
    </message>
    <message>
        <source>any licence</source>
        <translation>jede Lizenz</translation>
    </message>
    <message>
        <source>any size</source>
        <translation>jede Größe</translation>
    </message>
    <message>
        <source>built-in speculative decoding</source>
        <translation>eingebautes spekulatives Decodieren</translation>
    </message>
    <message>
        <source>change</source>
        <translation>Änderung</translation>
    </message>
    <message>
        <source>changed {date}</source>
        <translation>geändert {date}</translation>
    </message>
    <message>
        <source>chat</source>
        <comment>a purpose of models</comment>
        <translation>Chat</translation>
    </message>
    <message>
        <source>code</source>
        <comment>a purpose of models</comment>
        <translation>Code</translation>
    </message>
    <message>
        <source>comes with Kvasir</source>
        <translation>mitgeliefert</translation>
    </message>
    <message>
        <source>context not told</source>
        <translation>Kontext unbekannt</translation>
    </message>
    <message>
        <source>context {tokens}k</source>
        <translation>Kontext {tokens}k</translation>
    </message>
    <message>
        <source>done</source>
        <translation>fertig</translation>
    </message>
    <message>
        <source>downloads</source>
        <translation>Downloads</translation>
    </message>
    <message>
        <source>draft</source>
        <translation>Entwurf</translation>
    </message>
    <message>
        <source>draft model</source>
        <translation>Entwurfsmodell</translation>
    </message>
    <message>
        <source>draft {name}</source>
        <translation>Entwurf {name}</translation>
    </message>
    <message>
        <source>fits</source>
        <translation>passt</translation>
    </message>
    <message>
        <source>fits this machine</source>
        <translation>läuft hier</translation>
    </message>
    <message>
        <source>gated</source>
        <translation>beschränkt</translation>
    </message>
    <message>
        <source>it was broken off, and is not finished</source>
        <translation>abgebrochen und nicht fertig</translation>
    </message>
    <message>
        <source>its own</source>
        <translation>das eigene</translation>
    </message>
    <message>
        <source>licence of its own</source>
        <translation>eigene Lizenz</translation>
    </message>
    <message>
        <source>licence {name}</source>
        <translation>Lizenz {name}</translation>
    </message>
    <message>
        <source>linked, stays in its folder</source>
        <translation>verknüpft, bleibt in seinem Ordner</translation>
    </message>
    <message>
        <source>loaded</source>
        <translation>geladen</translation>
    </message>
    <message>
        <source>looking at its files</source>
        <translation>Dateien werden durchgesehen</translation>
    </message>
    <message>
        <source>made in {duration}</source>
        <translation>erstellt in {duration}</translation>
    </message>
    <message>
        <source>made of {name}</source>
        <translation>aus {name} erstellt</translation>
    </message>
    <message>
        <source>measured on {tokens:,} tokens that were not used for calibration</source>
        <translation>gemessen an {tokens:,} Token, die nicht zur Kalibrierung dienten</translation>
    </message>
    <message>
        <source>measuring what it lost</source>
        <translation>Verlust wird gemessen</translation>
    </message>
    <message>
        <source>missing</source>
        <translation>fehlt</translation>
    </message>
    <message>
        <source>none</source>
        <comment>no draft</comment>
        <translation>keines</translation>
    </message>
    <message>
        <source>not stated in its files</source>
        <translation>in den Dateien nicht angegeben</translation>
    </message>
    <message>
        <source>not there: plug in its disk, or look there no more</source>
        <translation>nicht da: den Datenträger anschließen oder hier nicht mehr suchen</translation>
    </message>
    <message>
        <source>of {origin}</source>
        <translation>von {origin}</translation>
    </message>
    <message>
        <source>one run each, no verdict</source>
        <translation>je ein Lauf, ohne Urteil</translation>
    </message>
    <message>
        <source>original</source>
        <translation>Original</translation>
    </message>
    <message>
        <source>over 40B</source>
        <translation>über 40B</translation>
    </message>
    <message>
        <source>paused</source>
        <translation>angehalten</translation>
    </message>
    <message>
        <source>pays when more than {share:.0f} % of its tokens are accepted</source>
        <translation>lohnt sich, wenn mehr als {share:.0f} % der Token angenommen werden</translation>
    </message>
    <message>
        <source>quantising</source>
        <translation>Quantisierung</translation>
    </message>
    <message>
        <source>queued</source>
        <translation>wartet</translation>
    </message>
    <message>
        <source>reading the model</source>
        <translation>Modell wird gelesen</translation>
    </message>
    <message>
        <source>reads more than the model itself</source>
        <translation>liest mehr als das Modell selbst</translation>
    </message>
    <message>
        <source>reasoning</source>
        <comment>a purpose of models</comment>
        <translation>Nachdenken</translation>
    </message>
    <message>
        <source>recommended</source>
        <translation>empfohlen</translation>
    </message>
    <message>
        <source>rounded</source>
        <translation>gerundet</translation>
    </message>
    <message>
        <source>runs</source>
        <translation>läuft</translation>
    </message>
    <message>
        <source>runs well here</source>
        <translation>läuft hier gut</translation>
    </message>
    <message>
        <source>sees pictures</source>
        <translation>sieht Bilder</translation>
    </message>
    <message>
        <source>small</source>
        <comment>a purpose of models</comment>
        <translation>klein</translation>
    </message>
    <message>
        <source>stopping at a point that it can continue from…</source>
        <translation>hält an einer Stelle an, von der aus es weitergehen kann…</translation>
    </message>
    <message>
        <source>the same</source>
        <translation>gleich</translation>
    </message>
    <message>
        <source>tight</source>
        <translation>knapp</translation>
    </message>
    <message>
        <source>too few tokens</source>
        <translation>zu wenige Token</translation>
    </message>
    <message>
        <source>too large</source>
        <translation>zu groß</translation>
    </message>
    <message>
        <source>unloaded</source>
        <translation>entladen</translation>
    </message>
    <message>
        <source>up to 2B</source>
        <translation>bis 2B</translation>
    </message>
    <message>
        <source>vision</source>
        <comment>a purpose of models</comment>
        <translation>Bilder</translation>
    </message>
    <message>
        <source>weights quantised by a load</source>
        <translation>beim Laden quantisierte Gewichte</translation>
    </message>
    <message>
        <source>with its {drafter}, {repository}</source>
        <translation>dazu {drafter}: {repository}</translation>
    </message>
    <message>
        <source>{bits} bits</source>
        <translation>{bits} Bit</translation>
    </message>
    <message>
        <source>{bits}-bit, block size 32; one file that llama.cpp, Ollama and LM Studio load as well.</source>
        <translation>{bits} Bit, Blöcke von 32; eine Datei, die auch llama.cpp, Ollama und LM Studio laden.</translation>
    </message>
    <message>
        <source>{count} downloads</source>
        <translation>{count} Downloads</translation>
    </message>
    <message>
        <source>{count} drafters</source>
        <translation>{count} Vorschläger</translation>
    </message>
    <message>
        <source>{done} of {total}</source>
        <translation>{done} von {total}</translation>
    </message>
    <message>
        <source>{done} of {total} layers</source>
        <translation>{done} von {total} Schichten</translation>
    </message>
    <message>
        <source>{done} of {total} texts</source>
        <translation>{done} von {total} Texten</translation>
    </message>
    <message>
        <source>{duration} left</source>
        <translation>noch {duration}</translation>
    </message>
    <message>
        <source>{format} of {name}</source>
        <translation>{format} von {name}</translation>
    </message>
    <message>
        <source>{free} of {total} free</source>
        <translation>{free} von {total} frei</translation>
    </message>
    <message>
        <source>{heads} of queries, {kv_heads} of keys and values, {width} wide</source>
        <translation>{heads} für Abfragen, {kv_heads} für Schlüssel und Werte, Breite {width}</translation>
    </message>
    <message>
        <source>{kinds} heads, or an assistant of Gemma 4, made for the model serve as well as a draft model.</source>
        <translation>{kinds}-Köpfe oder ein Assistent von Gemma 4, die zum Modell gehören, dienen so gut wie ein Entwurfsmodell.</translation>
    </message>
    <message>
        <source>{kl:.2g} nats</source>
        <translation>{kl:.2g} nat</translation>
    </message>
    <message>
        <source>{layers}, {width:,} wide</source>
        <translation>{layers}, Breite {width:,}</translation>
    </message>
    <message>
        <source>{names} and {name}</source>
        <translation>{names}- und {name}</translation>
    </message>
    <message>
        <source>{names} heads</source>
        <translation>{names}-Köpfe</translation>
    </message>
    <message>
        <source>{names} or {name}</source>
        <translation>{names}- oder {name}</translation>
    </message>
    <message>
        <source>{name}: {error} by {method}, {rounded} rounded to nearest</source>
        <translation>{name}: {error} mit {method}, {rounded} nur gerundet</translation>
    </message>
    <message>
        <source>{number} parameters</source>
        <translation>{number} Parameter</translation>
    </message>
    <message numerus="yes">
        <source>{n} adapters</source>
        <translation>
            <numerusform>1 Adapter</numerusform>
            <numerusform>{n} Adapter</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n} models, {size}</source>
        <translation>
            <numerusform>1 Modell, {size}</numerusform>
            <numerusform>{n} Modelle, {size}</numerusform>
        </translation>
    </message>
    <message>
        <source>{path} is not there any more</source>
        <translation>{path} ist nicht mehr da</translation>
    </message>
    <message>
        <source>{path} is not there any more.</source>
        <translation>{path} ist nicht mehr da.</translation>
    </message>
    <message>
        <source>{percent:.0f}%</source>
        <translation>{percent:.0f} %</translation>
    </message>
    <message>
        <source>{repository} at {revision}</source>
        <translation>{repository}, Stand {revision}</translation>
    </message>
    <message>
        <source>{size} of models, downloads and kept weights on this machine.</source>
        <translation>{size} an Modellen, Downloads und aufgehobenen Gewichten auf diesem Computer.</translation>
    </message>
    <message>
        <source>{tokens:,} in {kind}</source>
        <translation>{tokens:,} in {kind}</translation>
    </message>
    <message>
        <source>{tokens:,} tokens</source>
        <translation>{tokens:,} Token</translation>
    </message>
    <message>
        <source>{tokens:,} tokens of context</source>
        <translation>{tokens:,} Token Kontext</translation>
    </message>
    <message>
        <source>{tokens:,} tokens of {characters:,} characters</source>
        <translation>{tokens:,} Token aus {characters:,} Zeichen</translation>
    </message>
    <message>
        <source>{weights} for weights; {budget} may be used.</source>
        <translation>{weights} für Gewichte; {budget} sind nutzbar.</translation>
    </message>
    <message>
        <source>‹ Back</source>
        <translation>‹ Zurück</translation>
    </message>
    <message>
        <source>≈ {tokens} tokens/s</source>
        <translation>≈ {tokens} Token/s</translation>
    </message>
</context>
</TS>
