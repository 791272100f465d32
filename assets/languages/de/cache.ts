<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de" sourcelanguage="en">
<context>
    <name>kvasir</name>
    <message>
        <source>A pattern tells what state a page is in, its colour which chat it belongs to.</source>
        <translation>Das Muster zeigt den Zustand einer Seite, die Farbe den Chat, zu dem sie gehört.</translation>
    </message>
    <message>
        <source>Cache</source>
        <translation>Cache</translation>
    </message>
    <message>
        <source>Cached pages that made room; those in RAM or on disk can come back</source>
        <translation>Seiten im Cache, die Platz gemacht haben; die im RAM oder auf der Platte können zurückkommen</translation>
    </message>
    <message>
        <source>Chats whose keys and values can be read back instead of computed</source>
        <translation>Chats, deren Schlüssel und Werte sich zurücklesen lassen, statt neu berechnet zu werden</translation>
    </message>
    <message>
        <source>Evicted</source>
        <translation>Verdrängt</translation>
    </message>
    <message>
        <source>Figures of the cache</source>
        <translation>Werte des Caches</translation>
    </message>
    <message>
        <source>Hit rate</source>
        <translation>Trefferquote</translation>
    </message>
    <message>
        <source>In RAM</source>
        <translation>Im RAM</translation>
    </message>
    <message>
        <source>Keys and values: {used} of answers that are being written, {kept} cached for reuse</source>
        <translation>Schlüssel und Werte: {used} von laufenden Antworten, {kept} im Cache zur Wiederverwendung</translation>
    </message>
    <message>
        <source>Level {n}: {facts}: {text}</source>
        <translation>Ebene {n}: {facts}: {text}</translation>
    </message>
    <message>
        <source>No prompt has been looked up yet</source>
        <translation>Noch kein Prompt wurde nachgeschlagen</translation>
    </message>
    <message>
        <source>On disk</source>
        <translation>Auf der Platte</translation>
    </message>
    <message>
        <source>Page map</source>
        <translation>Seitenkarte</translation>
    </message>
    <message>
        <source>Page {n:,}: {state}</source>
        <translation>Seite {n:,}: {state}</translation>
    </message>
    <message>
        <source>Prefix tree</source>
        <translation>Präfixbaum</translation>
    </message>
    <message>
        <source>Prompt tokens not recomputed</source>
        <translation>Nicht neu berechnete Prompt-Token</translation>
    </message>
    <message>
        <source>Slots of pages in use that hold no token</source>
        <translation>Plätze benutzter Seiten, die kein Token enthalten</translation>
    </message>
    <message>
        <source>States</source>
        <translation>Zustände</translation>
    </message>
    <message>
        <source>States of recurrent layers, {size} each: {kept:,} kept of texts, from which later ones go on</source>
        <translation>Zustände rekurrenter Schichten, je {size}: {kept:,} von Texten behalten, an die spätere anschließen</translation>
    </message>
    <message>
        <source>Tokens of prompts that were found in the cache</source>
        <translation>Token von Prompts, die im Cache gefunden wurden</translation>
    </message>
    <message>
        <source>Unused slots (fragmentation)</source>
        <translation>Unbelegte Plätze (Fragmentierung)</translation>
    </message>
    <message>
        <source>What the squares mean</source>
        <translation>Bedeutung der Quadrate</translation>
    </message>
    <message>
        <source>and {n} more</source>
        <translation>und {n} weitere</translation>
    </message>
    <message>
        <source>by an answer</source>
        <translation>von einer Antwort</translation>
    </message>
    <message>
        <source>cached</source>
        <translation>im Cache</translation>
    </message>
    <message>
        <source>cached and in use</source>
        <translation>im Cache und benutzt</translation>
    </message>
    <message>
        <source>cached and in use by an answer</source>
        <translation>im Cache und von einer Antwort benutzt</translation>
    </message>
    <message>
        <source>cached for texts that begin alike, and not in use</source>
        <translation>im Cache für Texte, die gleich beginnen, und nicht benutzt</translation>
    </message>
    <message>
        <source>evicted</source>
        <translation>verdrängt</translation>
    </message>
    <message>
        <source>evicted, what it held made room</source>
        <translation>verdrängt, ihr Inhalt hat Platz gemacht</translation>
    </message>
    <message>
        <source>for texts that begin alike, and not in use</source>
        <translation>für Texte, die gleich beginnen, und nicht benutzt</translation>
    </message>
    <message>
        <source>free</source>
        <translation>frei</translation>
    </message>
    <message>
        <source>holds nothing</source>
        <translation>enthält nichts</translation>
    </message>
    <message>
        <source>idle {time}</source>
        <translation>{time} unbenutzt</translation>
    </message>
    <message>
        <source>in 16 bits both would be {size}</source>
        <translation>in 16 Bit wären beide zusammen {size}</translation>
    </message>
    <message>
        <source>in RAM</source>
        <translation>im RAM</translation>
    </message>
    <message>
        <source>in use</source>
        <translation>benutzt</translation>
    </message>
    <message>
        <source>in use ×{n}</source>
        <translation>benutzt ×{n}</translation>
    </message>
    <message>
        <source>it holds its tokens in fewer bits</source>
        <translation>sie hält ihre Token in weniger Bits</translation>
    </message>
    <message>
        <source>no saved chat</source>
        <translation>kein gespeicherter Chat</translation>
    </message>
    <message>
        <source>on disk</source>
        <translation>auf der Platte</translation>
    </message>
    <message>
        <source>one answer alone reads and writes it</source>
        <translation>nur eine Antwort liest und schreibt sie</translation>
    </message>
    <message>
        <source>part of this chat</source>
        <translation>Teil dieses Chats</translation>
    </message>
    <message>
        <source>private</source>
        <translation>privat</translation>
    </message>
    <message>
        <source>private, one answer alone reads and writes it</source>
        <translation>privat, nur eine Antwort liest und schreibt sie</translation>
    </message>
    <message>
        <source>quantised</source>
        <translation>quantisiert</translation>
    </message>
    <message>
        <source>quantised, it holds its tokens in fewer bits</source>
        <translation>quantisiert, sie hält ihre Token in weniger Bits</translation>
    </message>
    <message>
        <source>several answers read it</source>
        <translation>mehrere Antworten lesen sie</translation>
    </message>
    <message>
        <source>shared</source>
        <translation>geteilt</translation>
    </message>
    <message>
        <source>shared, several answers read it</source>
        <translation>geteilt, mehrere Antworten lesen sie</translation>
    </message>
    <message>
        <source>tokens {first:,} to {last:,}</source>
        <translation>Token {first:,} bis {last:,}</translation>
    </message>
    <message>
        <source>what it held made room</source>
        <translation>ihr Inhalt hat Platz gemacht</translation>
    </message>
    <message>
        <source>with recent tokens, which are not packed, {bits:.3g} bits</source>
        <translation>mit den jüngsten Token, die nicht gepackt sind, {bits:.3g} Bit</translation>
    </message>
    <message>
        <source>{cached:,} cached of {total:,}</source>
        <translation>{cached:,} im Cache von {total:,}</translation>
    </message>
    <message>
        <source>{hit:,} of {all:,} prompt tokens since the model was loaded were in the cache</source>
        <translation>{hit:,} von {all:,} Prompt-Token seit dem Laden des Modells waren im Cache</translation>
    </message>
    <message>
        <source>{kind}, {bits:.3g} bits</source>
        <translation>{kind}, {bits:.3g} Bit</translation>
    </message>
    <message numerus="yes">
        <source>{n:,} hits</source>
        <translation>
            <numerusform>1 Treffer</numerusform>
            <numerusform>{n:,} Treffer</numerusform>
        </translation>
    </message>
    <message>
        <source>{n:,} more in RAM</source>
        <translation>{n:,} weitere im RAM</translation>
    </message>
    <message numerus="yes">
        <source>{n:,} nodes</source>
        <translation>
            <numerusform>1 Knoten</numerusform>
            <numerusform>{n:,} Knoten</numerusform>
        </translation>
    </message>
    <message>
        <source>{n:,} not shown</source>
        <translation>{n:,} nicht gezeigt</translation>
    </message>
    <message numerus="yes">
        <source>{n:,} pages</source>
        <translation>
            <numerusform>1 Seite</numerusform>
            <numerusform>{n:,} Seiten</numerusform>
        </translation>
    </message>
    <message>
        <source>{n:,} pages: {states}</source>
        <translation>{n:,} Seiten: {states}</translation>
    </message>
    <message>
        <source>{n:,} saved on disk</source>
        <translation>{n:,} auf der Platte gespeichert</translation>
    </message>
    <message numerus="yes">
        <source>{n:,} tokens</source>
        <translation>
            <numerusform>1 Token</numerusform>
            <numerusform>{n:,} Token</numerusform>
        </translation>
    </message>
    <message>
        <source>{pages:,} pages there now; {out} went out and {back} came back</source>
        <translation>{pages:,} Seiten jetzt dort; {out} gingen hinaus und {back} kamen zurück</translation>
    </message>
    <message>
        <source>{used:,} in use</source>
        <translation>{used:,} benutzt</translation>
    </message>
    <message>
        <source>“{text}”</source>
        <translation>„{text}“</translation>
    </message>
</context>
</TS>
