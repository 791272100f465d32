<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de" sourcelanguage="en">
<context>
    <name>kvasir</name>
    <message>
        <source>(the limit for one chat)</source>
        <translation>(die Grenze für einen Chat)</translation>
    </message>
    <message>
        <source>A step</source>
        <translation>Ein Schritt</translation>
    </message>
    <message>
        <source>Acceptance rate</source>
        <translation>Annahmerate</translation>
    </message>
    <message>
        <source>Acceptance rate by draft position</source>
        <translation>Annahmerate nach Entwurfsposition</translation>
    </message>
    <message>
        <source>Between tokens, 95 % below</source>
        <translation>Zwischen Token, 95 % darunter</translation>
    </message>
    <message>
        <source>Between tokens, median</source>
        <translation>Zwischen Token, Median</translation>
    </message>
    <message>
        <source>Bytes read for a token: {size}</source>
        <translation>Für ein Token gelesen: {size}</translation>
    </message>
    <message>
        <source>Clock of the memory</source>
        <translation>Takt des Speichers</translation>
    </message>
    <message>
        <source>Clock of the multiprocessors</source>
        <translation>Takt der Multiprozessoren</translation>
    </message>
    <message>
        <source>Drafts {n} tokens ahead</source>
        <translation>Entwirft {n} Token voraus</translation>
    </message>
    <message>
        <source>Drafts {n} tokens ahead, {nodes} drafted tokens per step</source>
        <translation>Entwirft {n} Token voraus, {nodes} entworfene Token je Schritt</translation>
    </message>
    <message>
        <source>Each square is a page of 16 tokens.</source>
        <translation>Jedes Quadrat ist eine Seite mit 16 Token.</translation>
    </message>
    <message>
        <source>Each square is {n} pages.</source>
        <translation>Jedes Quadrat steht für {n} Seiten.</translation>
    </message>
    <message>
        <source>Embedding model</source>
        <translation>Embedding-Modell</translation>
    </message>
    <message>
        <source>Embedding model, in main memory</source>
        <translation>Embedding-Modell, im Hauptspeicher</translation>
    </message>
    <message>
        <source>Energy for each token of the last seconds: {energy}</source>
        <translation>Energie je Token in den letzten Sekunden: {energy}</translation>
    </message>
    <message>
        <source>GPU memory</source>
        <translation>GPU-Speicher</translation>
    </message>
    <message>
        <source>GPU power</source>
        <translation>GPU-Leistung</translation>
    </message>
    <message>
        <source>KV cached</source>
        <translation>KV im Cache</translation>
    </message>
    <message>
        <source>KV cached for reuse</source>
        <translation>KV im Cache zur Wiederverwendung</translation>
    </message>
    <message>
        <source>KV free (reserved)</source>
        <translation>KV frei (reserviert)</translation>
    </message>
    <message>
        <source>KV in use</source>
        <translation>KV benutzt</translation>
    </message>
    <message>
        <source>KV in use by answers that are being written</source>
        <translation>KV, benutzt von laufenden Antworten</translation>
    </message>
    <message>
        <source>Live figures appear when the engine is ready.</source>
        <translation>Werte erscheinen hier, sobald die Engine bereit ist.</translation>
    </message>
    <message>
        <source>Live plots</source>
        <translation>Laufende Diagramme</translation>
    </message>
    <message>
        <source>Looking at the last seconds…</source>
        <translation>Sieht sich die letzten Sekunden an…</translation>
    </message>
    <message>
        <source>Memory</source>
        <translation>Speicher</translation>
    </message>
    <message>
        <source>Memory of the engine&apos;s process and this machine</source>
        <translation>Speicher des Engine-Prozesses und dieses Computers</translation>
    </message>
    <message>
        <source>Memory of the graphics card</source>
        <translation>Speicher der Grafikkarte</translation>
    </message>
    <message>
        <source>No draft yet.</source>
        <translation>Noch kein Entwurf.</translation>
    </message>
    <message>
        <source>Nothing has been generated in the last seconds.</source>
        <translation>In den letzten Sekunden wurde nichts erzeugt.</translation>
    </message>
    <message>
        <source>Nothing holds it up that could be mended.</source>
        <translation>Nichts bremst, was sich beheben ließe.</translation>
    </message>
    <message>
        <source>Off: {reason}</source>
        <translation>Aus: {reason}</translation>
    </message>
    <message>
        <source>Open Models</source>
        <translation>Modelle öffnen</translation>
    </message>
    <message>
        <source>Open Settings</source>
        <translation>Einstellungen öffnen</translation>
    </message>
    <message>
        <source>Optimisations</source>
        <translation>Optimierungen</translation>
    </message>
    <message>
        <source>Other programs</source>
        <translation>Andere Programme</translation>
    </message>
    <message>
        <source>Pages</source>
        <translation>Seiten</translation>
    </message>
    <message>
        <source>Pictures kept for the next messages</source>
        <translation>Bilder, behalten für die nächsten Nachrichten</translation>
    </message>
    <message>
        <source>Pictures kept for the next messages, in main memory</source>
        <translation>Bilder, behalten für die nächsten Nachrichten, im Hauptspeicher</translation>
    </message>
    <message>
        <source>Plots</source>
        <translation>Diagramme</translation>
    </message>
    <message>
        <source>Power</source>
        <translation>Leistung</translation>
    </message>
    <message>
        <source>Power of {limit:.0f} W</source>
        <translation>Leistung von höchstens {limit:.0f} W</translation>
    </message>
    <message>
        <source>Prefill: {rate:,.0f} prompt tokens/s</source>
        <translation>Prompt lesen: {rate:,.0f} Token/s</translation>
    </message>
    <message>
        <source>Process memory</source>
        <translation>Prozessspeicher</translation>
    </message>
    <message>
        <source>Requests</source>
        <translation>Anfragen</translation>
    </message>
    <message>
        <source>Set {settings}</source>
        <translation>Einstellen: {settings}</translation>
    </message>
    <message>
        <source>Share of drafted tokens that the model accepted, by their position in the draft.</source>
        <translation>Anteil der entworfenen Token, die das Modell annahm, nach ihrer Position im Entwurf.</translation>
    </message>
    <message>
        <source>Share of the measured memory bandwidth</source>
        <translation>Anteil an der gemessenen Speicherbandbreite</translation>
    </message>
    <message>
        <source>Show or hide the optimisations</source>
        <translation>Optimierungen ein- oder ausblenden</translation>
    </message>
    <message>
        <source>Show the plots</source>
        <translation>Diagramme zeigen</translation>
    </message>
    <message>
        <source>TTFT {ms:.0f} ms</source>
        <translation>TTFT {ms:.0f} ms</translation>
    </message>
    <message>
        <source>Temperature</source>
        <comment>in degrees</comment>
        <translation>Temperatur</translation>
    </message>
    <message>
        <source>The last answer used no speculation.</source>
        <translation>Die letzte Antwort entstand ohne Spekulation.</translation>
    </message>
    <message>
        <source>The program itself</source>
        <translation>Das Programm selbst</translation>
    </message>
    <message>
        <source>Time to first token (TTFT)</source>
        <translation>Zeit bis zum ersten Token (TTFT)</translation>
    </message>
    <message>
        <source>Tokens per second</source>
        <translation>Token je Sekunde</translation>
    </message>
    <message>
        <source>Tokens written per second (a token is a word or a piece of one), memory, pages of the KV cache, and what the engine does now. A click shows the plots.</source>
        <translation>Geschriebene Token je Sekunde (ein Token ist ein Wort oder ein Teil davon), Speicher, Seiten des KV-Caches, und was die Engine gerade tut. Ein Klick zeigt die Diagramme.</translation>
    </message>
    <message>
        <source>Tokens/s</source>
        <translation>Token/s</translation>
    </message>
    <message>
        <source>Weights</source>
        <translation>Gewichte</translation>
    </message>
    <message>
        <source>What it is made of, what limits it, and what mends that</source>
        <translation>Woraus sie sich ergibt, was sie begrenzt und was das behebt</translation>
    </message>
    <message>
        <source>What would make it faster</source>
        <translation>Was es schneller machen würde</translation>
    </message>
    <message>
        <source>Why this speed?</source>
        <translation>Warum dieses Tempo?</translation>
    </message>
    <message>
        <source>Why?</source>
        <translation>Warum?</translation>
    </message>
    <message>
        <source>by position  {shares}</source>
        <translation>nach Position  {shares}</translation>
    </message>
    <message>
        <source>idle</source>
        <translation>im Leerlauf</translation>
    </message>
    <message>
        <source>no step is as short here</source>
        <translation>so kurz ist hier kein Schritt</translation>
    </message>
    <message>
        <source>of which bookkeeping</source>
        <translation>davon Verwaltung</translation>
    </message>
    <message>
        <source>of {n:,} pages</source>
        <translation>von {n:,} Seiten</translation>
    </message>
    <message>
        <source>off: {reason}</source>
        <translation>aus: {reason}</translation>
    </message>
    <message>
        <source>other programs</source>
        <translation>andere Programme</translation>
    </message>
    <message>
        <source>pages {pages} of {total:,}</source>
        <translation>Seiten: {pages} von {total:,}</translation>
    </message>
    <message>
        <source>paused</source>
        <translation>angehalten</translation>
    </message>
    <message>
        <source>paused {seconds:.2f} s</source>
        <translation>angehalten {seconds:.2f} s</translation>
    </message>
    <message>
        <source>preempted</source>
        <translation>zurückgestellt</translation>
    </message>
    <message>
        <source>prefill: {rate:,.0f} tokens/s</source>
        <translation>Prompt lesen: {rate:,.0f} Token/s</translation>
    </message>
    <message>
        <source>program</source>
        <translation>Programm</translation>
    </message>
    <message>
        <source>prompt read in {seconds:.2f} s</source>
        <translation>Prompt gelesen in {seconds:.2f} s</translation>
    </message>
    <message>
        <source>steps are as short for up to {n:,} at once</source>
        <translation>so kurz sind die Schritte bei bis zu {n:,} zugleich</translation>
    </message>
    <message>
        <source>swapped</source>
        <translation>ausgelagert</translation>
    </message>
    <message>
        <source>waited {seconds:.2f} s</source>
        <translation>gewartet {seconds:.2f} s</translation>
    </message>
    <message>
        <source>weights</source>
        <translation>Gewichte</translation>
    </message>
    <message>
        <source>with its pages in host memory {seconds:.2f} s</source>
        <translation>mit Seiten im Hauptspeicher {seconds:.2f} s</translation>
    </message>
    <message>
        <source>without its pages {seconds:.2f} s</source>
        <translation>ohne Seiten {seconds:.2f} s</translation>
    </message>
    <message>
        <source>written in {seconds:.2f} s</source>
        <translation>geschrieben in {seconds:.2f} s</translation>
    </message>
    <message>
        <source>{cached:,} cached</source>
        <translation>{cached:,} im Cache</translation>
    </message>
    <message>
        <source>{joules:.0f} J/token</source>
        <translation>{joules:.0f} J/Token</translation>
    </message>
    <message>
        <source>{joules:.0f} mJ/token</source>
        <translation>{joules:.0f} mJ/Token</translation>
    </message>
    <message>
        <source>{joules:.1f} J/token</source>
        <translation>{joules:.1f} J/Token</translation>
    </message>
    <message>
        <source>{ms:.1f} ms/token</source>
        <translation>{ms:.1f} ms/Token</translation>
    </message>
    <message>
        <source>{name} (off)</source>
        <translation>{name} (aus)</translation>
    </message>
    <message>
        <source>{n} decoding</source>
        <translation>{n} decodierend</translation>
    </message>
    <message>
        <source>{n} more rows</source>
        <translation>{n} weitere Zeilen</translation>
    </message>
    <message numerus="yes">
        <source>{n} more, which matter less.</source>
        <translation>
            <numerusform>1 weiterer Grund, der weniger zählt.</numerusform>
            <numerusform>{n} weitere Gründe, die weniger zählen.</numerusform>
        </translation>
    </message>
    <message>
        <source>{n} of {ended} in time</source>
        <translation>{n} von {ended} rechtzeitig</translation>
    </message>
    <message>
        <source>{n} prefilling</source>
        <translation>{n} lesend</translation>
    </message>
    <message>
        <source>{n} queued</source>
        <translation>{n} wartend</translation>
    </message>
    <message>
        <source>{n} running</source>
        <translation>{n} aktiv</translation>
    </message>
    <message>
        <source>{percent:.0f} % of memory bandwidth</source>
        <translation>{percent:.0f} % der Speicherbandbreite</translation>
    </message>
    <message>
        <source>{percent:.1f} % unused slots</source>
        <translation>{percent:.1f} % unbelegt</translation>
    </message>
    <message>
        <source>{service} answer {number}: prompt of {prompt:,} tokens, {written:,} tokens written</source>
        <translation>Antwort {number} ({service}): Prompt mit {prompt:,} Token, {written:,} Token geschrieben</translation>
    </message>
    <message>
        <source>{service} answer: prompt of {prompt:,} tokens, {written:,} tokens written</source>
        <translation>Antwort ({service}): Prompt mit {prompt:,} Token, {written:,} Token geschrieben</translation>
    </message>
    <message>
        <source>{service}: {n} of {ended} answers of the last minute had their first token within {first:g} s and no more than {between:,.0f} ms between tokens</source>
        <translation>{service}: {n} von {ended} Antworten der letzten Minute hatten ihr erstes Token in {first:g} s und höchstens {between:,.0f} ms zwischen Token</translation>
    </message>
    <message>
        <source>{share} accepted</source>
        <translation>{share} angenommen</translation>
    </message>
    <message>
        <source>{share} of drafts accepted</source>
        <translation>{share} der Entwürfe angenommen</translation>
    </message>
    <message>
        <source>{tokens:.1f} tokens per step</source>
        <translation>{tokens:.1f} Token je Schritt</translation>
    </message>
    <message>
        <source>{used:,} are in use by answers that are being written. {cached:,} are cached for prompts that begin alike, and evicted when room is needed. {free:,} are free. Of the slots of both, {live:,} hold a token and {empty:,} hold none.</source>
        <translation>{used:,} sind von laufenden Antworten benutzt. {cached:,} liegen im Cache für Prompts, die gleich beginnen, und werden verdrängt, wenn Platz fehlt. {free:,} sind frei. Von den Plätzen beider enthalten {live:,} ein Token und {empty:,} keines.</translation>
    </message>
    <message>
        <source>{used:,} in use</source>
        <translation>{used:,} benutzt</translation>
    </message>
    <message>
        <source>{used} of {total}</source>
        <translation>{used} von {total}</translation>
    </message>
    <message>
        <source>{who}: {accepted:,} of {drafted:,} drafted tokens accepted</source>
        <translation>{who}: {accepted:,} von {drafted:,} entworfenen Token angenommen</translation>
    </message>
</context>
</TS>
