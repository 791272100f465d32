<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de" sourcelanguage="en">
<context>
    <name>kvasir</name>
    <message>
        <source>(ends)</source>
        <translation>(endet)</translation>
    </message>
    <message>
        <source>Both answers</source>
        <translation>Beide Antworten</translation>
    </message>
    <message>
        <source>Both texts are the same.</source>
        <translation>Beide Texte sind gleich.</translation>
    </message>
    <message>
        <source>The answers differ {where}.</source>
        <translation>Die Antworten unterscheiden sich {where}.</translation>
    </message>
    <message>
        <source>Their speeds are those of unlike answers.</source>
        <translation>Ihre Geschwindigkeiten sind die ungleicher Antworten.</translation>
    </message>
    <message>
        <source>This formula is shown as its source: {why}.</source>
        <translation>Diese Formel wird als Quelltext gezeigt: {why}.</translation>
    </message>
    <message>
        <source>\begin and \end are not in pairs</source>
        <translation>\begin und \end bilden keine Paare</translation>
    </message>
    <message>
        <source>\left and \right are not in pairs</source>
        <translation>\left und \right bilden keine Paare</translation>
    </message>
    <message>
        <source>a fraction has no denominator</source>
        <translation>einem Bruch fehlt der Nenner</translation>
    </message>
    <message>
        <source>a fraction has no numerator</source>
        <translation>einem Bruch fehlt der Zähler</translation>
    </message>
    <message>
        <source>from the first word on</source>
        <translation>ab dem ersten Wort</translation>
    </message>
    <message>
        <source>from word {at} on</source>
        <translation>ab Wort {at}</translation>
    </message>
    <message>
        <source>image</source>
        <translation>Bild</translation>
    </message>
    <message>
        <source>it defines commands</source>
        <translation>sie definiert Befehle</translation>
    </message>
    <message>
        <source>it has more than {n:,} characters</source>
        <translation>sie hat mehr als {n:,} Zeichen</translation>
    </message>
    <message>
        <source>it has two subscripts in one place</source>
        <translation>sie hat zwei Indizes an einer Stelle</translation>
    </message>
    <message>
        <source>it has two superscripts in one place</source>
        <translation>sie hat zwei Exponenten an einer Stelle</translation>
    </message>
    <message>
        <source>it is empty</source>
        <translation>sie ist leer</translation>
    </message>
    <message>
        <source>it is nested too deeply</source>
        <translation>sie ist zu tief verschachtelt</translation>
    </message>
    <message>
        <source>it is not LaTeX that Kvasir can draw</source>
        <translation>sie ist kein LaTeX, das Kvasir zeichnen kann</translation>
    </message>
    <message>
        <source>it is too wide for one line</source>
        <translation>sie ist zu breit für eine Zeile</translation>
    </message>
    <message>
        <source>something is missing after _ or ^</source>
        <translation>nach _ oder ^ fehlt etwas</translation>
    </message>
    <message>
        <source>something is missing at its end</source>
        <translation>am Ende fehlt etwas</translation>
    </message>
    <message>
        <source>the command {name} is not known</source>
        <translation>der Befehl {name} ist unbekannt</translation>
    </message>
    <message>
        <source>the environment {name} is not known</source>
        <translation>die Umgebung {name} ist unbekannt</translation>
    </message>
    <message>
        <source>the font for maths has no {letter}</source>
        <translation>der Formelschrift fehlt {letter}</translation>
    </message>
    <message>
        <source>what draws maths could not be loaded ({error})</source>
        <translation>was Formeln zeichnet, ließ sich nicht laden ({error})</translation>
    </message>
</context>
</TS>
