<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de" sourcelanguage="en">
<context>
    <name>kvasir</name>
    <message>
        <source>All {n} switches</source>
        <translation>Alle {n} Schalter</translation>
    </message>
    <message>
        <source>Another measurement is running.</source>
        <translation>Es läuft schon eine Messung.</translation>
    </message>
    <message>
        <source>Both answers side by side, with the place marked where they part</source>
        <translation>Beide Antworten nebeneinander, mit markierter Stelle, an der sie sich trennen</translation>
    </message>
    <message>
        <source>Close what was measured</source>
        <translation>Messung schließen</translation>
    </message>
    <message>
        <source>Colours the words of an answer: accepted draft tokens, the model&apos;s token where a draft was rejected, all others. Changes the view only.</source>
        <translation>Färbt die Wörter einer Antwort: angenommene Entwurfs-Token, das Token des Modells, wo ein Entwurf abgelehnt wurde, alle übrigen. Ändert nur die Ansicht.</translation>
    </message>
    <message>
        <source>Drops the cache; the next message is read again.</source>
        <translation>Verwirft den Cache; die nächste Nachricht wird neu gelesen.</translation>
    </message>
    <message>
        <source>Effect on this computer</source>
        <translation>Wirkung auf diesem Computer</translation>
    </message>
    <message>
        <source>Help</source>
        <translation>Hilfe</translation>
    </message>
    <message>
        <source>Highlight drafted tokens</source>
        <translation>Entworfene Token hervorheben</translation>
    </message>
    <message>
        <source>It was to be the same: that is a fault.</source>
        <translation>Er sollte gleich sein: Das ist ein Fehler.</translation>
    </message>
    <message>
        <source>Its settings are lossless up to rounding, which the fast kernels do otherwise for other batches; with batch_invariant on in both columns the text must be the same.</source>
        <translation>Die Einstellungen sind verlustfrei bis auf Rundung, und die schnellen Kernel runden bei anderen Stapeln anders; mit batch_invariant in beiden Spalten muss der Text gleich sein.</translation>
    </message>
    <message>
        <source>Learn</source>
        <translation>Versuch</translation>
    </message>
    <message>
        <source>Lossy: the text may change a little.</source>
        <translation>Verlustbehaftet: Der Text kann sich ein wenig ändern.</translation>
    </message>
    <message>
        <source>Measure its cost on this chat</source>
        <translation>Einbuße an diesem Chat messen</translation>
    </message>
    <message>
        <source>Measure {switch}</source>
        <translation>{switch} messen</translation>
    </message>
    <message>
        <source>Measured with {on}; the switch is at {now} now.</source>
        <translation>Gemessen mit {on}; jetzt steht der Schalter auf {now}.</translation>
    </message>
    <message>
        <source>Measuring its cost on this chat…</source>
        <translation>Misst die Einbuße an diesem Chat…</translation>
    </message>
    <message>
        <source>Measuring its cost…</source>
        <translation>Misst die Einbuße…</translation>
    </message>
    <message>
        <source>Measuring now.</source>
        <translation>Wird gerade gemessen.</translation>
    </message>
    <message>
        <source>Measuring {title}</source>
        <translation>Misst {title}</translation>
    </message>
    <message>
        <source>Measuring…</source>
        <translation>Misst…</translation>
    </message>
    <message>
        <source>Not measured yet.</source>
        <translation>Noch nicht gemessen.</translation>
    </message>
    <message>
        <source>On: “{asked}”</source>
        <translation>Zu: „{asked}“</translation>
    </message>
    <message>
        <source>On: “{asked}” ({off} → {on})</source>
        <translation>Zu: „{asked}“ ({off} → {on})</translation>
    </message>
    <message>
        <source>Optimisations</source>
        <translation>Optimierungen</translation>
    </message>
    <message>
        <source>Quality with {setting}: {told}. Details: PPL {exact:.2f} → {present:.2f}, KL {divergence:.2g}</source>
        <translation>Qualität mit {setting}: {told}. Im Einzelnen: PPL {exact:.2f} → {present:.2f}, KL {divergence:.2g}</translation>
    </message>
    <message>
        <source>Read about {name}</source>
        <translation>Über {name} lesen</translation>
    </message>
    <message>
        <source>Reads this chat&apos;s tokens again with exact keys and values, and compares what the model expects next.</source>
        <translation>Liest die Token dieses Chats mit exakten Schlüsseln und Werten noch einmal und vergleicht, was das Modell als Nächstes erwartet.</translation>
    </message>
    <message>
        <source>Reloads the model.</source>
        <translation>Lädt das Modell neu.</translation>
    </message>
    <message>
        <source>Run an A/B test on the last prompt of this chat.</source>
        <translation>A/B-Test mit dem letzten Prompt dieses Chats ausführen.</translation>
    </message>
    <message>
        <source>Run {done} of {total}</source>
        <translation>Lauf {done} von {total}</translation>
    </message>
    <message>
        <source>Same distribution: another sample, drawn from exactly the same probabilities.</source>
        <translation>Gleiche Verteilung: eine andere Stichprobe, aus genau denselben Wahrscheinlichkeiten gezogen.</translation>
    </message>
    <message>
        <source>See both</source>
        <translation>Beide ansehen</translation>
    </message>
    <message>
        <source>See in the Lab what {name} does</source>
        <translation>Im Labor sehen, was {name} bewirkt</translation>
    </message>
    <message>
        <source>Stop measuring {switch}</source>
        <translation>Messung von {switch} beenden</translation>
    </message>
    <message>
        <source>Stop measuring.</source>
        <translation>Messung beenden.</translation>
    </message>
    <message>
        <source>Takes effect at once.</source>
        <translation>Wirkt sofort.</translation>
    </message>
    <message>
        <source>Takes effect with the next message.</source>
        <translation>Wirkt ab der nächsten Nachricht.</translation>
    </message>
    <message>
        <source>The answers are the same, token for token.</source>
        <translation>Die Antworten sind gleich, Token für Token.</translation>
    </message>
    <message>
        <source>The answers differ {where} (a near-tie), so their speeds are not comparable.</source>
        <translation>Die Antworten unterscheiden sich {where} (fast gleichauf); ihre Geschwindigkeiten sind nicht vergleichbar.</translation>
    </message>
    <message>
        <source>The answers differ {where}, so their speeds are not comparable.</source>
        <translation>Die Antworten unterscheiden sich {where}; ihre Geschwindigkeiten sind nicht vergleichbar.</translation>
    </message>
    <message>
        <source>The switches appear when the engine is ready.</source>
        <translation>Die Schalter erscheinen, sobald die Engine bereit ist.</translation>
    </message>
    <message>
        <source>The switches that are right as they are for most people</source>
        <translation>Schalter, die für die meisten richtig eingestellt sind</translation>
    </message>
    <message>
        <source>There is nothing to measure with the present model.</source>
        <translation>Mit dem jetzigen Modell gibt es nichts zu messen.</translation>
    </message>
    <message>
        <source>This chat has no prompt yet. Ask something: measuring replays its last one.</source>
        <translation>Dieser Chat hat noch keinen Prompt. Erst etwas fragen: Gemessen wird mit dem letzten Prompt.</translation>
    </message>
    <message>
        <source>This computer was busy: other programs took {share:.0f}&#xa0;% of its processor during the runs.</source>
        <translation>Dieser Computer war beschäftigt: Andere Programme nahmen während der Läufe {share:.0f}&#xa0;% des Prozessors.</translation>
    </message>
    <message>
        <source>This computer was quiet: other programs took {share:.0f}&#xa0;% of its processor.</source>
        <translation>Dieser Computer war ruhig: Andere Programme nahmen {share:.0f}&#xa0;% des Prozessors.</translation>
    </message>
    <message>
        <source>This older run could not tell. Run it again.</source>
        <translation>Dieser ältere Lauf lässt kein Urteil zu. Bitte neu ausführen.</translation>
    </message>
    <message>
        <source>What to watch: {shows}.</source>
        <translation>Zu beobachten: {shows}.</translation>
    </message>
    <message numerus="yes">
        <source>about {gain} ({between} in {n} pairs), too noisy for a verdict</source>
        <translation>
            <numerusform>etwa {gain} ({between} in 1 Paar), zu verrauscht für ein Urteil</numerusform>
            <numerusform>etwa {gain} ({between} in {n} Paaren), zu verrauscht für ein Urteil</numerusform>
        </translation>
    </message>
    <message>
        <source>from token {at} on</source>
        <translation>ab Token {at}</translation>
    </message>
    <message>
        <source>lossy</source>
        <translation>verlustbehaftet</translation>
    </message>
    <message>
        <source>no clear
difference</source>
        <translation>kein klarer
Unterschied</translation>
    </message>
    <message>
        <source>no clear difference</source>
        <translation>kein klarer Unterschied</translation>
    </message>
    <message>
        <source>no figure</source>
        <translation>kein Wert</translation>
    </message>
    <message>
        <source>no measurable loss ({tokens:,} tokens)</source>
        <translation>keine messbare Einbuße ({tokens:,} Token)</translation>
    </message>
    <message>
        <source>no ratio: one of them is 0</source>
        <translation>kein Verhältnis: Einer der Werte ist 0</translation>
    </message>
    <message>
        <source>no verdict yet: this chat has {tokens:,} tokens, a verdict needs {least}</source>
        <translation>noch kein Urteil: Dieser Chat hat {tokens:,} Token, ein Urteil braucht {least}</translation>
    </message>
    <message>
        <source>off</source>
        <comment>a switch</comment>
        <translation>aus</translation>
    </message>
    <message>
        <source>on</source>
        <comment>a switch</comment>
        <translation>ein</translation>
    </message>
    <message>
        <source>perplexity {loss:+.1f} % (± {error:.1f}) ({tokens:,} tokens)</source>
        <translation>Perplexität {loss:+.1f} % (± {error:.1f}) ({tokens:,} Token)</translation>
    </message>
    <message>
        <source>reloads</source>
        <translation>lädt neu</translation>
    </message>
    <message>
        <source>reloads the model</source>
        <translation>lädt das Modell neu</translation>
    </message>
    <message>
        <source>same distribution</source>
        <translation>gleiche Verteilung</translation>
    </message>
    <message>
        <source>{column}: perplexity {here:.3f} against {there:.3f} of {first}, KL {kl:.5f} nats, the same likeliest token at {percent:.1f}% of {tokens:,} places.</source>
        <translation>{column}: Perplexität {here:.3f} gegen {there:.3f} von {first}, KL {kl:.5f} nats, dasselbe wahrscheinlichste Token an {percent:.1f} % von {tokens:,} Stellen.</translation>
    </message>
    <message>
        <source>{figure}: {after} instead of {before}.</source>
        <translation>{figure}: {after} statt {before}.</translation>
    </message>
    <message>
        <source>{gain}
unlike</source>
        <translation>{gain}
ungleich</translation>
    </message>
    <message numerus="yes">
        <source>{gain}, but {n} of {least} pairs are too few for a verdict</source>
        <translation>
            <numerusform>{gain}, aber 1 von {least} Paaren ist zu wenig für ein Urteil</numerusform>
            <numerusform>{gain}, aber {n} von {least} Paaren sind zu wenig für ein Urteil</numerusform>
        </translation>
    </message>
    <message>
        <source>{n:,.0f} bytes</source>
        <translation>{n:,.0f} Byte</translation>
    </message>
    <message numerus="yes">
        <source>{n} changed</source>
        <translation>
            <numerusform>1 geändert</numerusform>
            <numerusform>{n} geändert</numerusform>
        </translation>
    </message>
    <message>
        <source>{rate:,.1f} tokens/s</source>
        <translation>{rate:,.1f} Token/s</translation>
    </message>
    <message>
        <source>{ratio}× later</source>
        <translation>{ratio}× später</translation>
    </message>
    <message>
        <source>{ratio}× less</source>
        <translation>{ratio}× weniger</translation>
    </message>
    <message>
        <source>{ratio}× more</source>
        <translation>{ratio}× mehr</translation>
    </message>
    <message>
        <source>{ratio}× sooner</source>
        <translation>{ratio}× früher</translation>
    </message>
    <message>
        <source>{switch}: measure its cost on this chat</source>
        <translation>{switch}: Einbuße an diesem Chat messen</translation>
    </message>
    <message>
        <source>{verdict} (unlike answers)</source>
        <translation>{verdict} (ungleiche Antworten)</translation>
    </message>
    <message numerus="yes">
        <source>{verdict} ({between} in {n} pairs)</source>
        <translation>
            <numerusform>{verdict} ({between} in 1 Paar)</numerusform>
            <numerusform>{verdict} ({between} in {n} Paaren)</numerusform>
        </translation>
    </message>
</context>
</TS>
