<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de" sourcelanguage="en">
<context>
    <name>kvasir</name>
    <message>
        <source>A comparison is running.</source>
        <translation>Ein Vergleich läuft.</translation>
    </message>
    <message>
        <source>A file</source>
        <translation>Eine Datei</translation>
    </message>
    <message>
        <source>A file that kvasir bench --load shows again</source>
        <translation>Eine Datei, die kvasir bench --load wieder anzeigt</translation>
    </message>
    <message>
        <source>A measurement of the panel is running. Run this when that is finished.</source>
        <translation>Eine Messung der Leiste läuft. Erst danach ausführen.</translation>
    </message>
    <message>
        <source>A model is being loaded. Run this when it is there.</source>
        <translation>Ein Modell wird geladen. Erst danach ausführen.</translation>
    </message>
    <message>
        <source>A plot</source>
        <translation>Ein Diagramm</translation>
    </message>
    <message>
        <source>A text, or a .jsonl of prompts</source>
        <translation>Ein Text oder eine .jsonl mit Prompts</translation>
    </message>
    <message>
        <source>A web page with everything that is shown here</source>
        <translation>Eine Webseite mit allem, was hier gezeigt wird</translation>
    </message>
    <message>
        <source>Add a column</source>
        <translation>Spalte hinzufügen</translation>
    </message>
    <message>
        <source>Add a setting</source>
        <translation>Einstellung hinzufügen</translation>
    </message>
    <message>
        <source>Add a setting to column {letter}</source>
        <translation>Einstellung zu Spalte {letter} hinzufügen</translation>
    </message>
    <message>
        <source>All experiments</source>
        <translation>Alle Versuche</translation>
    </message>
    <message>
        <source>All points</source>
        <translation>Alle Punkte</translation>
    </message>
    <message>
        <source>All switches are set.</source>
        <translation>Alle Schalter sind gesetzt.</translation>
    </message>
    <message>
        <source>An answer is being written, which would disturb the figures. Run this when it is finished.</source>
        <translation>Eine Antwort wird geschrieben und würde die Werte verfälschen. Erst danach ausführen.</translation>
    </message>
    <message>
        <source>Another experiment is running.</source>
        <translation>Ein anderer Versuch läuft.</translation>
    </message>
    <message>
        <source>Arithmetic intensity</source>
        <translation>Arithmetische Intensität</translation>
    </message>
    <message>
        <source>As in the paper</source>
        <translation>Wie im Artikel</translation>
    </message>
    <message>
        <source>As needed: until each figure has a verdict, or for about a minute.</source>
        <translation>Nach Bedarf: bis jeder Wert ein Urteil hat oder etwa eine Minute lang.</translation>
    </message>
    <message>
        <source>B against A</source>
        <translation>B gegen A</translation>
    </message>
    <message>
        <source>Both scores were within {apart:.4f} of each other there: a near-tie.</source>
        <translation>Beide Bewertungen lagen dort höchstens {apart:.4f} auseinander: fast gleichauf.</translation>
    </message>
    <message>
        <source>Built-in set</source>
        <translation>Eingebaute</translation>
    </message>
    <message>
        <source>But {raised}</source>
        <translation>Aber: {raised}</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>Abbrechen</translation>
    </message>
    <message>
        <source>Choose a file of prompts.</source>
        <translation>Eine Datei mit Prompts wählen.</translation>
    </message>
    <message>
        <source>Choose a file. Prompts</source>
        <translation>Datei wählen. Prompts</translation>
    </message>
    <message>
        <source>Choose a file. Text to score</source>
        <translation>Datei wählen. Text zum Bewerten</translation>
    </message>
    <message>
        <source>Choose…</source>
        <translation>Wählen…</translation>
    </message>
    <message>
        <source>Column A is the baseline. Choose a model of this machine for it.</source>
        <translation>Spalte A ist die Vergleichsbasis. Für sie ein Modell dieses Computers wählen.</translation>
    </message>
    <message>
        <source>Compare</source>
        <translation>Vergleichen</translation>
    </message>
    <message>
        <source>Compare any settings</source>
        <translation>Vergleich</translation>
    </message>
    <message>
        <source>Drafted tokens</source>
        <translation>Entworfene Token</translation>
    </message>
    <message>
        <source>Duplicate</source>
        <translation>Duplizieren</translation>
    </message>
    <message>
        <source>Duplicate column {letter}</source>
        <translation>Spalte {letter} duplizieren</translation>
    </message>
    <message>
        <source>Each experiment shows what one technique buys on this machine: predict, run, and compare with the paper it comes from. A token is a word or a piece of one; a pair is one run of each side. Pictures of experiments that were not run yet are drawings.</source>
        <translation>Jeder Versuch zeigt, was eine Technik auf diesem Computer bringt: vorhersagen, ausführen und mit dem Artikel vergleichen, aus dem sie stammt. Ein Token ist ein Wort oder ein Teil davon; ein Paar ist ein Lauf jeder Seite. Bilder von Versuchen, die noch nicht liefen, sind Zeichnungen.</translation>
    </message>
    <message>
        <source>Every column answers the same prompts in random order, after a warm-up. Column A is the baseline.</source>
        <translation>Jede Spalte beantwortet nach dem Aufwärmen dieselben Prompts in zufälliger Reihenfolge. Spalte A ist die Vergleichsbasis.</translation>
    </message>
    <message>
        <source>Every column is scored on it: perplexity, and KL against the first one.</source>
        <translation>Jede Spalte wird daran bewertet: Perplexität, und KL gegen die erste.</translation>
    </message>
    <message>
        <source>Experiment</source>
        <translation>Versuch</translation>
    </message>
    <message>
        <source>Experiments</source>
        <translation>Versuche</translation>
    </message>
    <message>
        <source>Figures</source>
        <translation>Werte</translation>
    </message>
    <message>
        <source>Figures (*.json)</source>
        <translation>Werte (*.json)</translation>
    </message>
    <message>
        <source>HTML, with its pictures…</source>
        <translation>HTML, mit Bildern…</translation>
    </message>
    <message>
        <source>Here, and in the paper</source>
        <translation>Hier und im Artikel</translation>
    </message>
    <message>
        <source>How it was taken</source>
        <translation>Wie gemessen wurde</translation>
    </message>
    <message>
        <source>It is running now.</source>
        <translation>Er läuft gerade.</translation>
    </message>
    <message>
        <source>It runs with {name} as it is loaded; no chat is answered meanwhile. It takes longer than with the bundled model.</source>
        <translation>Er läuft mit {name}, wie es geladen ist; währenddessen wird kein Chat beantwortet. Es dauert länger als mit dem mitgelieferten Modell.</translation>
    </message>
    <message>
        <source>KV pages</source>
        <translation>KV-Seiten</translation>
    </message>
    <message>
        <source>Left and Right go from side to side.</source>
        <translation>Links und Rechts wechseln die Seite.</translation>
    </message>
    <message>
        <source>Length of an answer</source>
        <translation>Länge einer Antwort</translation>
    </message>
    <message>
        <source>Length of an answer in tokens</source>
        <translation>Länge einer Antwort in Token</translation>
    </message>
    <message>
        <source>Loading the models…</source>
        <translation>Lädt die Modelle…</translation>
    </message>
    <message>
        <source>Loading the model…</source>
        <translation>Lädt das Modell…</translation>
    </message>
    <message>
        <source>Looking at the experiments and at what was found before…</source>
        <translation>Liest die Versuche und frühere Ergebnisse…</translation>
    </message>
    <message>
        <source>Measure again, {time}</source>
        <translation>Neu messen, {time}</translation>
    </message>
    <message>
        <source>Measure this computer, {time}</source>
        <translation>Diesen Computer messen, {time}</translation>
    </message>
    <message>
        <source>Measuring the ceilings, then one answer, eight together, and a prompt…</source>
        <translation>Misst die Obergrenzen, dann eine Antwort, acht zusammen und einen Prompt…</translation>
    </message>
    <message>
        <source>Memory</source>
        <translation>Speicher</translation>
    </message>
    <message>
        <source>Model</source>
        <translation>Modell</translation>
    </message>
    <message>
        <source>Model of the experiments</source>
        <translation>Modell der Versuche</translation>
    </message>
    <message>
        <source>Moment of the run</source>
        <translation>Zeitpunkt des Laufs</translation>
    </message>
    <message>
        <source>Name of column {letter}</source>
        <translation>Name von Spalte {letter}</translation>
    </message>
    <message>
        <source>No data</source>
        <translation>Keine Daten</translation>
    </message>
    <message>
        <source>No request has come yet.</source>
        <translation>Noch keine Anfrage.</translation>
    </message>
    <message>
        <source>None</source>
        <comment>a text</comment>
        <translation>Keiner</translation>
    </message>
    <message>
        <source>Not as in the paper</source>
        <translation>Anders als im Artikel</translation>
    </message>
    <message>
        <source>Nothing has been computed yet.</source>
        <translation>Noch nichts berechnet.</translation>
    </message>
    <message>
        <source>Nothing has been drafted yet.</source>
        <translation>Noch nichts entworfen.</translation>
    </message>
    <message>
        <source>Nothing has been read yet.</source>
        <translation>Noch nichts gelesen.</translation>
    </message>
    <message>
        <source>Nothing is cached yet.</source>
        <translation>Noch nichts im Cache.</translation>
    </message>
    <message>
        <source>On this computer</source>
        <translation>Auf diesem Computer</translation>
    </message>
    <message>
        <source>Open experiment {number}: {title}</source>
        <translation>Versuch {number} öffnen: {title}</translation>
    </message>
    <message>
        <source>Other servers: from column B on</source>
        <translation>Andere Server: ab Spalte B</translation>
    </message>
    <message>
        <source>Packs a model that comes in 16 or 32 bits a weight while it is loaded.</source>
        <translation>Packt ein Modell mit 16 oder 32 Bit je Gewicht beim Laden.</translation>
    </message>
    <message>
        <source>Page {n:,}: free</source>
        <translation>Seite {n:,}: frei</translation>
    </message>
    <message>
        <source>Page {n:,}: {owner}, {state}</source>
        <translation>Seite {n:,}: {owner}, {state}</translation>
    </message>
    <message>
        <source>Page {n:,}: {share} read</source>
        <translation>Seite {n:,}: {share} gelesen</translation>
    </message>
    <message>
        <source>Page {n:,}: {share} read, holds what is looked for</source>
        <translation>Seite {n:,}: {share} gelesen, enthält das Gesuchte</translation>
    </message>
    <message>
        <source>Pages read</source>
        <translation>Gelesene Seiten</translation>
    </message>
    <message>
        <source>Pause</source>
        <translation>Anhalten</translation>
    </message>
    <message>
        <source>Pause: how these pictures came about</source>
        <translation>Anhalten: wie diese Bilder entstanden</translation>
    </message>
    <message>
        <source>Picture</source>
        <translation>Bild</translation>
    </message>
    <message>
        <source>Picture of this page (PNG)…</source>
        <translation>Bild dieser Seite (PNG)…</translation>
    </message>
    <message>
        <source>Play</source>
        <translation>Abspielen</translation>
    </message>
    <message>
        <source>Play: how these pictures came about</source>
        <translation>Abspielen: wie diese Bilder entstanden</translation>
    </message>
    <message>
        <source>Plot</source>
        <translation>Diagramm</translation>
    </message>
    <message>
        <source>Predict</source>
        <translation>Vorhersage</translation>
    </message>
    <message>
        <source>Prefix tree</source>
        <translation>Präfixbaum</translation>
    </message>
    <message>
        <source>Progress of the comparison</source>
        <translation>Fortschritt des Vergleichs</translation>
    </message>
    <message>
        <source>Progress of the experiment</source>
        <translation>Fortschritt des Versuchs</translation>
    </message>
    <message>
        <source>Prompts</source>
        <translation>Prompts</translation>
    </message>
    <message>
        <source>Prompts: path of a file</source>
        <translation>Prompts: Pfad einer Datei</translation>
    </message>
    <message>
        <source>Quality on your text</source>
        <translation>Qualität an Ihrem Text</translation>
    </message>
    <message>
        <source>Quantise a 16-bit model on load</source>
        <translation>16-Bit-Modell beim Laden quantisieren</translation>
    </message>
    <message>
        <source>Quantise on load</source>
        <translation>Quantisieren</translation>
    </message>
    <message>
        <source>Remove</source>
        <translation>Entfernen</translation>
    </message>
    <message>
        <source>Remove column {letter}</source>
        <translation>Spalte {letter} entfernen</translation>
    </message>
    <message>
        <source>Remove the setting {name}</source>
        <translation>Einstellung {name} entfernen</translation>
    </message>
    <message>
        <source>Remove this setting</source>
        <translation>Diese Einstellung entfernen</translation>
    </message>
    <message>
        <source>Requests over time</source>
        <translation>Anfragen im Zeitverlauf</translation>
    </message>
    <message>
        <source>Roofline</source>
        <translation>Roofline</translation>
    </message>
    <message>
        <source>Roofline of this computer</source>
        <translation>Roofline dieses Computers</translation>
    </message>
    <message>
        <source>Rounds</source>
        <translation>Runden</translation>
    </message>
    <message>
        <source>Run (Enter)</source>
        <translation>Ausführen (Eingabetaste)</translation>
    </message>
    <message>
        <source>Run again with {model}, {time}</source>
        <translation>Neu ausführen mit {model}, {time}</translation>
    </message>
    <message>
        <source>Run again, {time}</source>
        <translation>Neu ausführen, {time}</translation>
    </message>
    <message>
        <source>Run all, {time}</source>
        <translation>Alle ausführen, {time}</translation>
    </message>
    <message>
        <source>Run with these</source>
        <translation>Damit ausführen</translation>
    </message>
    <message>
        <source>Run with {model}, {time}</source>
        <translation>Ausführen mit {model}, {time}</translation>
    </message>
    <message>
        <source>Run, but without a verdict: its times could not be told apart.</source>
        <translation>Ausgeführt, aber ohne Urteil: Die Zeiten ließen sich nicht unterscheiden.</translation>
    </message>
    <message>
        <source>Run, {time}</source>
        <translation>Ausführen, {time}</translation>
    </message>
    <message>
        <source>Running now…</source>
        <translation>Läuft gerade…</translation>
    </message>
    <message>
        <source>Save as</source>
        <translation>Speichern</translation>
    </message>
    <message>
        <source>Save figures…</source>
        <translation>Werte speichern…</translation>
    </message>
    <message>
        <source>Save report…</source>
        <translation>Bericht speichern…</translation>
    </message>
    <message>
        <source>Save the comparison</source>
        <translation>Vergleich speichern</translation>
    </message>
    <message>
        <source>Save the result</source>
        <translation>Ergebnis speichern</translation>
    </message>
    <message>
        <source>Save the result as a file</source>
        <translation>Ergebnis als Datei speichern</translation>
    </message>
    <message>
        <source>Saved as {path}.</source>
        <translation>Gespeichert als {path}.</translation>
    </message>
    <message>
        <source>See what each technique buys</source>
        <translation>Was jede Technik bringt</translation>
    </message>
    <message>
        <source>Show again how these pictures came about, all sides at the same pace.</source>
        <translation>Noch einmal zeigen, wie diese Bilder entstanden, alle Seiten im selben Takt.</translation>
    </message>
    <message>
        <source>Show all {n:,} prompts</source>
        <translation>Alle {n:,} Prompts zeigen</translation>
    </message>
    <message>
        <source>Single runs: {runs}</source>
        <translation>Einzelne Läufe: {runs}</translation>
    </message>
    <message>
        <source>Speed</source>
        <translation>Geschwindigkeit</translation>
    </message>
    <message>
        <source>Step {step:,} of {steps:,}</source>
        <translation>Schritt {step:,} von {steps:,}</translation>
    </message>
    <message>
        <source>Step {step:,}: &quot;{token}&quot;, drafted and not checked yet</source>
        <translation>Schritt {step:,}: „{token}“, entworfen und noch nicht geprüft</translation>
    </message>
    <message>
        <source>Step {step:,}: &quot;{token}&quot;, {fate}</source>
        <translation>Schritt {step:,}: „{token}“, {fate}</translation>
    </message>
    <message numerus="yes">
        <source>Step {step:,}: {computed:,} of {n:,} tokens computed</source>
        <translation>
            <numerusform>Schritt {step:,}: {computed:,} von 1 Token berechnet</numerusform>
            <numerusform>Schritt {step:,}: {computed:,} von {n:,} Token berechnet</numerusform>
        </translation>
    </message>
    <message>
        <source>Stop (Esc)</source>
        <translation>Stopp (Esc)</translation>
    </message>
    <message>
        <source>Stopped: nothing of this run was kept.</source>
        <translation>Abgebrochen: Von diesem Lauf wurde nichts behalten.</translation>
    </message>
    <message>
        <source>Stopping…</source>
        <translation>Bricht ab…</translation>
    </message>
    <message>
        <source>Text to score</source>
        <translation>Text zum Bewerten</translation>
    </message>
    <message>
        <source>Text to score: path of a file</source>
        <translation>Text zum Bewerten: Pfad einer Datei</translation>
    </message>
    <message>
        <source>The Lab is measuring. Wait until it has finished.</source>
        <translation>Das Labor misst. Bitte warten, bis es fertig ist.</translation>
    </message>
    <message>
        <source>The Lab is measuring. What you asked of the engine is done when it has finished.</source>
        <translation>Das Labor misst. Was von der Engine verlangt wurde, geschieht, sobald es fertig ist.</translation>
    </message>
    <message>
        <source>The computer was busy.</source>
        <translation>Der Computer war beschäftigt.</translation>
    </message>
    <message>
        <source>The engine has not told its switches yet.</source>
        <translation>Die Engine hat ihre Schalter noch nicht gemeldet.</translation>
    </message>
    <message>
        <source>The engine is not ready yet. Try again when it has started.</source>
        <translation>Die Engine ist noch nicht bereit. Nach dem Start erneut versuchen.</translation>
    </message>
    <message>
        <source>The file could not be written ({why}). Choose another folder.</source>
        <translation>Die Datei ließ sich nicht schreiben ({why}). Einen anderen Ordner wählen.</translation>
    </message>
    <message>
        <source>The file could not be written: {why}. Choose another place.</source>
        <translation>Die Datei ließ sich nicht schreiben: {why}. Einen anderen Ort wählen.</translation>
    </message>
    <message>
        <source>The first answer, as the model wrote it: here it only matters whether the sides wrote the same.</source>
        <translation>Die erste Antwort, wie das Modell sie schrieb: Hier zählt nur, ob die Seiten dasselbe schrieben.</translation>
    </message>
    <message>
        <source>The first side that differs is {letter}, {side}.</source>
        <translation>Die erste abweichende Seite ist {letter}, {side}.</translation>
    </message>
    <message>
        <source>The paper: {title}</source>
        <translation>Der Artikel: {title}</translation>
    </message>
    <message>
        <source>The problem</source>
        <translation>Das Problem</translation>
    </message>
    <message>
        <source>The same picture for all sides</source>
        <translation>Dasselbe Bild für alle Seiten</translation>
    </message>
    <message>
        <source>The text</source>
        <translation>Der Text</translation>
    </message>
    <message>
        <source>There are no amounts yet.</source>
        <translation>Noch keine Mengen.</translation>
    </message>
    <message>
        <source>There are no pages yet.</source>
        <translation>Noch keine Seiten.</translation>
    </message>
    <message>
        <source>There are no values yet.</source>
        <translation>Noch keine Werte.</translation>
    </message>
    <message>
        <source>There is no file {path}. Choose one.</source>
        <translation>Es gibt keine Datei {path}. Eine Datei wählen.</translation>
    </message>
    <message>
        <source>These runs don&apos;t count for your prediction.</source>
        <translation>Diese Läufe zählen nicht für Ihre Vorhersage.</translation>
    </message>
    <message>
        <source>This chat has no prompt yet.</source>
        <translation>Dieser Chat hat noch keinen Prompt.</translation>
    </message>
    <message>
        <source>This chat&apos;s</source>
        <translation>Aus dem Chat</translation>
    </message>
    <message>
        <source>This computer</source>
        <translation>Dieser Computer</translation>
    </message>
    <message>
        <source>This engine cannot compare.</source>
        <translation>Diese Engine kann nicht vergleichen.</translation>
    </message>
    <message>
        <source>This engine has no experiments.</source>
        <translation>Diese Engine hat keine Versuche.</translation>
    </message>
    <message>
        <source>To write a token, the processor or GPU reads the weights and the cache, and computes with them. Whichever takes longer is the limit, the roof, and nothing passes it. This measures the ceilings and shows where the model stands. A pass that multiplies packed weights and others has a roof between those two ceilings: the solid stroke over each measured point. A pass is one run through the model: prefill reads a prompt, decode writes a token for each answer of a batch, and verify checks draft tokens.</source>
        <translation>Um ein Token zu schreiben, liest der Prozessor oder die GPU die Gewichte und den Cache und rechnet damit. Was länger dauert, ist die Grenze, das Dach, und nichts kommt darüber. Hier werden die Obergrenzen gemessen und gezeigt, wo das Modell steht. Ein Durchgang, der gepackte und andere Gewichte multipliziert, hat ein Dach zwischen diesen beiden Obergrenzen: der durchgezogene Strich über jedem gemessenen Punkt. Ein Durchgang geht einmal durch das Modell: Prefill liest einen Prompt, Decode schreibt ein Token für jede Antwort eines Stapels, und Verify prüft Entwurfs-Token.</translation>
    </message>
    <message>
        <source>Tokens computed in each step</source>
        <translation>Je Schritt berechnete Token</translation>
    </message>
    <message>
        <source>Try again</source>
        <translation>Erneut versuchen</translation>
    </message>
    <message>
        <source>Try other sizes</source>
        <translation>Andere Größen probieren</translation>
    </message>
    <message>
        <source>Use in my chats</source>
        <translation>In meinen Chats verwenden</translation>
    </message>
    <message>
        <source>Values</source>
        <translation>Matrix</translation>
    </message>
    <message>
        <source>Web page (*.html)</source>
        <translation>Webseite (*.html)</translation>
    </message>
    <message>
        <source>What draft tokens would move</source>
        <translation>Was Entwurfs-Token brächten</translation>
    </message>
    <message>
        <source>What each switch would move</source>
        <translation>Was jeder Schalter brächte</translation>
    </message>
    <message>
        <source>What it says</source>
        <translation>Was daraus folgt</translation>
    </message>
    <message>
        <source>What more answers at once would move</source>
        <translation>Was mehr Antworten zugleich brächten</translation>
    </message>
    <message>
        <source>When it does not help</source>
        <translation>Wann es nicht hilft</translation>
    </message>
    <message>
        <source>Where it stands</source>
        <translation>Wo das Modell steht</translation>
    </message>
    <message>
        <source>Why the figures differ</source>
        <translation>Warum die Werte abweichen</translation>
    </message>
    <message>
        <source>With other sizes than usual ({chosen}), so it does not answer the question above and cannot be compared with other results.</source>
        <translation>Mit anderen Größen als üblich ({chosen}), beantwortet also nicht die Frage oben und ist nicht mit anderen Ergebnissen vergleichbar.</translation>
    </message>
    <message>
        <source>With {model} on {device}.</source>
        <translation>Mit {model} auf {device}.</translation>
    </message>
    <message>
        <source>You said “{choice}”, and this computer measured {measured}: right.</source>
        <translation>Vorhergesagt war „{choice}“, und dieser Computer maß {measured}: richtig.</translation>
    </message>
    <message>
        <source>You said “{choice}”. This run cannot tell: it measured from {low} to {high} times. Run it again to be sure.</source>
        <translation>Vorhergesagt war „{choice}“. Dieser Lauf lässt kein Urteil zu: Er maß das {low}- bis {high}-Fache. Zur Sicherheit neu ausführen.</translation>
    </message>
    <message>
        <source>You said “{choice}”. This run cannot tell: other programs took {percent:.0f}&#xa0;% of the processor. Run it again when this computer is quiet.</source>
        <translation>Vorhergesagt war „{choice}“. Dieser Lauf lässt kein Urteil zu: Andere Programme nahmen {percent:.0f}&#xa0;% des Prozessors. Neu ausführen, wenn dieser Computer ruhig ist.</translation>
    </message>
    <message>
        <source>You said “{choice}”. This run cannot tell: too few pairs were run. Run it again to be sure.</source>
        <translation>Vorhergesagt war „{choice}“. Dieser Lauf lässt kein Urteil zu: Es liefen zu wenige Paare. Zur Sicherheit neu ausführen.</translation>
    </message>
    <message>
        <source>You said “{choice}”; this computer measured no clear difference (from {low} to {high} times).</source>
        <translation>Vorhergesagt war „{choice}“; dieser Computer maß keinen klaren Unterschied (das {low}- bis {high}-Fache).</translation>
    </message>
    <message>
        <source>You said “{choice}”; this computer measured {measured}.</source>
        <translation>Vorhergesagt war „{choice}“; dieser Computer maß {measured}.</translation>
    </message>
    <message>
        <source>Your answer</source>
        <translation>Ihre Antwort</translation>
    </message>
    <message>
        <source>Your answer to “{asked}”</source>
        <translation>Ihre Antwort auf „{asked}“</translation>
    </message>
    <message>
        <source>Your chats use it already.</source>
        <translation>Ihre Chats verwenden es schon.</translation>
    </message>
    <message>
        <source>Your chats use it from now on: {settings}.</source>
        <translation>Ihre Chats verwenden es ab jetzt: {settings}.</translation>
    </message>
    <message>
        <source>a chat</source>
        <translation>ein Chat</translation>
    </message>
    <message>
        <source>about {n} min</source>
        <translation>etwa {n} min</translation>
    </message>
    <message>
        <source>about {n} s</source>
        <translation>etwa {n} s</translation>
    </message>
    <message>
        <source>across: {tokens}; down: {steps}</source>
        <translation>quer: {tokens}; nach unten: {steps}</translation>
    </message>
    <message>
        <source>as needed</source>
        <translation>nach Bedarf</translation>
    </message>
    <message>
        <source>baseline</source>
        <translation>Vergleichsbasis</translation>
    </message>
    <message>
        <source>beyond it</source>
        <translation>darüber</translation>
    </message>
    <message>
        <source>by one chat (its colour)</source>
        <translation>von einem Chat (seine Farbe)</translation>
    </message>
    <message>
        <source>computed in this step</source>
        <translation>in diesem Schritt berechnet</translation>
    </message>
    <message>
        <source>computed: a switch changed</source>
        <translation>berechnet: ein Schalter geändert</translation>
    </message>
    <message>
        <source>computed: draft tokens, all accepted</source>
        <translation>berechnet: Entwurfs-Token, alle angenommen</translation>
    </message>
    <message>
        <source>computed: more answers at once</source>
        <translation>berechnet: mehr Antworten zugleich</translation>
    </message>
    <message>
        <source>decoding</source>
        <translation>decodiert</translation>
    </message>
    <message>
        <source>draft token accepted</source>
        <translation>Entwurfs-Token angenommen</translation>
    </message>
    <message>
        <source>draft token rejected</source>
        <translation>Entwurfs-Token abgelehnt</translation>
    </message>
    <message>
        <source>free</source>
        <translation>frei</translation>
    </message>
    <message>
        <source>generated by the model</source>
        <translation>vom Modell erzeugt</translation>
    </message>
    <message>
        <source>idle</source>
        <translation>im Leerlauf</translation>
    </message>
    <message>
        <source>kept in the KV cache</source>
        <translation>im KV-Cache behalten</translation>
    </message>
    <message>
        <source>limit {size}</source>
        <translation>Grenze {size}</translation>
    </message>
    <message>
        <source>limit {size}, far beyond →</source>
        <translation>Grenze {size}, weit außerhalb →</translation>
    </message>
    <message>
        <source>measured</source>
        <translation>gemessen</translation>
    </message>
    <message>
        <source>no points</source>
        <translation>keine Punkte</translation>
    </message>
    <message>
        <source>no result</source>
        <translation>ohne Ergebnis</translation>
    </message>
    <message>
        <source>not read</source>
        <translation>nicht gelesen</translation>
    </message>
    <message>
        <source>nothing</source>
        <translation>nichts</translation>
    </message>
    <message>
        <source>nothing changed</source>
        <translation>nichts geändert</translation>
    </message>
    <message numerus="yes">
        <source>of {n:,} pages that hold what is looked for, {read}</source>
        <translation>
            <numerusform>von 1 Seite, die das Gesuchte enthält, {read}</numerusform>
            <numerusform>von {n:,} Seiten, die das Gesuchte enthalten, {read}</numerusform>
        </translation>
    </message>
    <message>
        <source>operations a byte</source>
        <translation>Operationen je Byte</translation>
    </message>
    <message>
        <source>operations a second</source>
        <translation>Operationen je Sekunde</translation>
    </message>
    <message>
        <source>paused, pages kept</source>
        <translation>angehalten, Seiten behalten</translation>
    </message>
    <message>
        <source>preempted, its pages in host memory</source>
        <translation>zurückgestellt, Seiten im Hauptspeicher</translation>
    </message>
    <message>
        <source>preempted, without its pages</source>
        <translation>zurückgestellt, ohne Seiten</translation>
    </message>
    <message>
        <source>prefilling</source>
        <translation>liest den Prompt</translation>
    </message>
    <message>
        <source>queued</source>
        <translation>wartet</translation>
    </message>
    <message>
        <source>read</source>
        <comment>done</comment>
        <translation>gelesen</translation>
    </message>
    <message>
        <source>read by several chats</source>
        <translation>von mehreren Chats gelesen</translation>
    </message>
    <message>
        <source>request {n}</source>
        <translation>Anfrage {n}</translation>
    </message>
    <message>
        <source>reserved, empty</source>
        <translation>reserviert, leer</translation>
    </message>
    <message>
        <source>run {n}</source>
        <translation>Lauf {n}</translation>
    </message>
    <message>
        <source>running</source>
        <translation>läuft</translation>
    </message>
    <message>
        <source>seed {seed}</source>
        <translation>Startwert {seed}</translation>
    </message>
    <message>
        <source>single runs</source>
        <translation>einzelne Läufe</translation>
    </message>
    <message>
        <source>the limit that one answer cannot pass</source>
        <translation>die Grenze, die eine Antwort nicht überschreiten kann</translation>
    </message>
    <message>
        <source>the others are compared with A</source>
        <translation>die anderen gegen A</translation>
    </message>
    <message>
        <source>the roof it is held against</source>
        <translation>das Dach, an dem er gemessen wird</translation>
    </message>
    <message numerus="yes">
        <source>the text from its start: {n:,} pages</source>
        <translation>
            <numerusform>der Text von Anfang an: 1 Seite</numerusform>
            <numerusform>der Text von Anfang an: {n:,} Seiten</numerusform>
        </translation>
    </message>
    <message>
        <source>tokens</source>
        <translation>Token</translation>
    </message>
    <message>
        <source>tokens a second</source>
        <translation>Token je Sekunde</translation>
    </message>
    <message>
        <source>what is looked for</source>
        <translation>das Gesuchte</translation>
    </message>
    <message>
        <source>with a result</source>
        <translation>mit Ergebnis</translation>
    </message>
    <message>
        <source>with a result, no verdict</source>
        <translation>mit Ergebnis, ohne Urteil</translation>
    </message>
    <message>
        <source>within the limit</source>
        <translation>innerhalb der Grenze</translation>
    </message>
    <message numerus="yes">
        <source>{at:,} of {n:,} chats</source>
        <translation>
            <numerusform>{at:,} von 1 Chat</numerusform>
            <numerusform>{at:,} von {n:,} Chats</numerusform>
        </translation>
    </message>
    <message>
        <source>{cached:,} of the {prompt:,} tokens of its prompt came from the cache, so only {left:,} had to be read before its first word, which came after {ms:,.0f} ms.</source>
        <translation>{cached:,} der {prompt:,} Token des Prompts kamen aus dem Cache; nur {left:,} mussten vor dem ersten Wort gelesen werden, das nach {ms:,.0f} ms kam.</translation>
    </message>
    <message>
        <source>{ceiling}: {value:,.1f} billion bytes a second.</source>
        <translation>{ceiling}: {value:,.1f} Milliarden Byte je Sekunde.</translation>
    </message>
    <message>
        <source>{ceiling}: {value:,.1f} billion operations a second.</source>
        <translation>{ceiling}: {value:,.1f} Milliarden Operationen je Sekunde.</translation>
    </message>
    <message>
        <source>{chosen:,} (cut to {used:,})</source>
        <translation>{chosen:,} (gekürzt auf {used:,})</translation>
    </message>
    <message>
        <source>{day} {month} {year}, {time}</source>
        <translation>{day}. {month} {year}, {time}</translation>
    </message>
    <message>
        <source>{factor:.2f}× the limit of one answer</source>
        <translation>{factor:.2f}× die Grenze einer Antwort</translation>
    </message>
    <message>
        <source>{figure} (lower is better)</source>
        <translation>{figure} (weniger ist besser)</translation>
    </message>
    <message>
        <source>{figure} of {column}</source>
        <translation>{figure} von {column}</translation>
    </message>
    <message>
        <source>{figure}: single runs</source>
        <translation>{figure}: einzelne Läufe</translation>
    </message>
    <message>
        <source>{kind} at load</source>
        <translation>{kind} beim Laden</translation>
    </message>
    <message>
        <source>{low} to {high}</source>
        <translation>{low} bis {high}</translation>
    </message>
    <message>
        <source>{measured} (from {low} to {high})</source>
        <translation>{measured} (von {low} bis {high})</translation>
    </message>
    <message>
        <source>{median} of its roof, the fastest pass {fastest}</source>
        <translation>{median} des Dachs, der schnellste Durchgang {fastest}</translation>
    </message>
    <message>
        <source>{model} on {device} ({machine}), Kvasir {version}, {when}, seed {seed}</source>
        <translation>{model} auf {device} ({machine}), Kvasir {version}, {when}, Startwert {seed}</translation>
    </message>
    <message>
        <source>{model} on {device}, {machine}, {date}</source>
        <translation>{model} auf {device}, {machine}, {date}</translation>
    </message>
    <message>
        <source>{model} on {server}</source>
        <translation>{model} auf {server}</translation>
    </message>
    <message>
        <source>{n:,} are reserved and empty</source>
        <translation>{n:,} reserviert und leer</translation>
    </message>
    <message numerus="yes">
        <source>{n:,} chats</source>
        <translation>
            <numerusform>{n:,} Chat</numerusform>
            <numerusform>{n:,} Chats</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n:,} earlier steps not shown</source>
        <translation>
            <numerusform>1 früherer Schritt nicht gezeigt</numerusform>
            <numerusform>{n:,} frühere Schritte nicht gezeigt</numerusform>
        </translation>
    </message>
    <message>
        <source>{n:,} free</source>
        <translation>{n:,} frei</translation>
    </message>
    <message>
        <source>{n:,} more</source>
        <translation>{n:,} weitere</translation>
    </message>
    <message numerus="yes">
        <source>{n:,} nodes</source>
        <translation>
            <numerusform>1 Knoten</numerusform>
            <numerusform>{n:,} Knoten</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n:,} pages</source>
        <translation>
            <numerusform>1 Seite</numerusform>
            <numerusform>{n:,} Seiten</numerusform>
        </translation>
    </message>
    <message>
        <source>{n:,} queued</source>
        <translation>{n:,} wartend</translation>
    </message>
    <message numerus="yes">
        <source>{n:,} requests in {time}</source>
        <translation>
            <numerusform>1 Anfrage in {time}</numerusform>
            <numerusform>{n:,} Anfragen in {time}</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n:,} steps</source>
        <translation>
            <numerusform>1 Schritt</numerusform>
            <numerusform>{n:,} Schritte</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n:,} tokens</source>
        <translation>
            <numerusform>1 Token</numerusform>
            <numerusform>{n:,} Token</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n:,} were read</source>
        <translation>
            <numerusform>1 wurde gelesen</numerusform>
            <numerusform>{n:,} wurden gelesen</numerusform>
        </translation>
    </message>
    <message>
        <source>{name} (bundled)</source>
        <translation>{name} (mitgeliefert)</translation>
    </message>
    <message>
        <source>{nodes} with {tokens} for {chats}, whose texts have {read:,} together.</source>
        <translation>{nodes} mit {tokens} für {chats}, deren Texte zusammen {read:,} haben.</translation>
    </message>
    <message>
        <source>{now:.2f} of {all:.2f} s</source>
        <translation>{now:.2f} von {all:.2f} s</translation>
    </message>
    <message numerus="yes">
        <source>{pages:,} hold tokens of {n:,} requests</source>
        <translation>
            <numerusform>{pages:,} mit Token von 1 Anfrage</numerusform>
            <numerusform>{pages:,} mit Token von {n:,} Anfragen</numerusform>
        </translation>
    </message>
    <message>
        <source>{pages}, {read:,} of them read, {share} of the text</source>
        <translation>{pages}, davon {read:,} gelesen, {share} des Textes</translation>
    </message>
    <message>
        <source>{picture}, a drawing: this was not run yet</source>
        <translation>{picture}, eine Zeichnung: Dies lief noch nicht</translation>
    </message>
    <message>
        <source>{picture}, in the last run</source>
        <translation>{picture}, im letzten Lauf</translation>
    </message>
    <message>
        <source>{point}: {intensity:,.3g} operations a byte, {speed}, {rate} tokens a second ({setting})</source>
        <translation>{point}: {intensity:,.3g} Operationen je Byte, {speed}, {rate} Token je Sekunde ({setting})</translation>
    </message>
    <message>
        <source>{point}: {share} of its roof, {roof}</source>
        <translation>{point}: {share} des Dachs, {roof}</translation>
    </message>
    <message>
        <source>{rate:.1f} tokens a step: its {tokens:,} tokens took {steps:,} steps, where one without drafts gives one token. {accepted:,} of {drafted:,} drafted tokens were accepted.</source>
        <translation>{rate:.1f} Token je Schritt: Ihre {tokens:,} Token brauchten {steps:,} Schritte, die ohne Entwürfe je ein Token ergeben. {accepted:,} von {drafted:,} entworfenen Token wurden angenommen.</translation>
    </message>
    <message>
        <source>{request}: {doing} from {start} to {end}</source>
        <translation>{request}: {doing} von {start} bis {end}</translation>
    </message>
    <message>
        <source>{rows:,} by {columns:,} values, the largest at {cell}.</source>
        <translation>{rows:,} mal {columns:,} Werte, der größte bei {cell}.</translation>
    </message>
    <message>
        <source>{server}: no models told</source>
        <translation>{server}: keine Modelle gemeldet</translation>
    </message>
    <message>
        <source>{share} of its slots used</source>
        <translation>{share} der Plätze belegt</translation>
    </message>
    <message>
        <source>{size} beyond the limit</source>
        <translation>{size} über der Grenze</translation>
    </message>
    <message>
        <source>{steps}: {tokens} computed, none of them again.</source>
        <translation>{steps}: {tokens} berechnet, davon keines erneut.</translation>
    </message>
    <message>
        <source>{steps}: {tokens} computed, {again:,} of them again.</source>
        <translation>{steps}: {tokens} berechnet, davon {again:,} erneut.</translation>
    </message>
    <message>
        <source>{steps}: {tokens} drafted, {accepted:,} accepted, {rejected:,} rejected; {rate:.1f} tokens a step.</source>
        <translation>{steps}: {tokens} entworfen, {accepted:,} angenommen, {rejected:,} abgelehnt; {rate:.1f} Token je Schritt.</translation>
    </message>
    <message>
        <source>{step}: checked</source>
        <translation>{step}: geprüft</translation>
    </message>
    <message>
        <source>{step}: drafted</source>
        <translation>{step}: entworfen</translation>
    </message>
    <message>
        <source>{tokens}, read by no chat</source>
        <translation>{tokens}, von keinem Chat gelesen</translation>
    </message>
    <message>
        <source>{tokens}, read by {chats}</source>
        <translation>{tokens}, gelesen von {chats}</translation>
    </message>
    <message>
        <source>{up} over {across}</source>
        <translation>{up} über {across}</translation>
    </message>
    <message>
        <source>“{text}”</source>
        <translation>„{text}“</translation>
    </message>
</context>
</TS>
