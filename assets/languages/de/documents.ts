<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de" sourcelanguage="en">
<context>
    <name>kvasir</name>
    <message>
        <source>Configuration</source>
        <comment>a kind of file</comment>
        <translation>Konfiguration</translation>
    </message>
    <message>
        <source>Cut after {most:,} characters, on page {page:,} of {pages:,}.</source>
        <translation>Nach {most:,} Zeichen abgeschnitten, auf Seite {page:,} von {pages:,}.</translation>
    </message>
    <message>
        <source>Cut after {most:,} characters.</source>
        <translation>Nach {most:,} Zeichen abgeschnitten.</translation>
    </message>
    <message>
        <source>Cut after {most:,} of {count:,} characters.</source>
        <translation>Nach {most:,} von {count:,} Zeichen abgeschnitten.</translation>
    </message>
    <message>
        <source>It has {count:,} passages, and at most {most:,} are searched by meaning.</source>
        <translation>Es hat {count:,} Abschnitte; nach Bedeutung werden höchstens {most:,} durchsucht.</translation>
    </message>
    <message>
        <source>It is a {kind} file, though its name ends in {end}.</source>
        <translation>Es ist eine {kind}-Datei, obwohl der Name auf {end} endet.</translation>
    </message>
    <message>
        <source>It is an EPUB file, though its name ends in {end}.</source>
        <translation>Es ist eine EPUB-Datei, obwohl der Name auf {end} endet.</translation>
    </message>
    <message>
        <source>It is plain text, though its name ends in {end}.</source>
        <translation>Es ist reiner Text, obwohl der Name auf {end} endet.</translation>
    </message>
    <message>
        <source>Its encoding is not stated and was guessed: {encoding}.</source>
        <translation>Die Kodierung ist nicht angegeben und wurde geraten: {encoding}.</translation>
    </message>
    <message>
        <source>Its parts are nested too deeply, so its words were taken without their structure.</source>
        <translation>Die Teile sind zu tief verschachtelt, daher wurden die Wörter ohne ihre Struktur übernommen.</translation>
    </message>
    <message>
        <source>Log</source>
        <comment>a kind of file</comment>
        <translation>Protokoll</translation>
    </message>
    <message>
        <source>Mail</source>
        <comment>a kind of file</comment>
        <translation>E-Mail</translation>
    </message>
    <message>
        <source>Notebook</source>
        <comment>a kind of file</comment>
        <translation>Notebook</translation>
    </message>
    <message>
        <source>Only the first {read:,} of {pages:,} pages were read.</source>
        <translation>Nur die ersten {read:,} von {pages:,} Seiten wurden gelesen.</translation>
    </message>
    <message>
        <source>Only {done:,} of {count:,} passages were read in {seconds:.0f} seconds. The next question goes on with the others.</source>
        <translation>In {seconds:.0f} Sekunden wurden nur {done:,} von {count:,} Abschnitten gelesen. Die nächste Frage macht mit den übrigen weiter.</translation>
    </message>
    <message>
        <source>Subtitles</source>
        <comment>a kind of file</comment>
        <translation>Untertitel</translation>
    </message>
    <message>
        <source>The embedding model changed meanwhile. Ask again.</source>
        <translation>Das Embedding-Modell hat inzwischen gewechselt. Erneut fragen.</translation>
    </message>
    <message>
        <source>The embedding model computes values that are not numbers. Choose another one in Settings.</source>
        <translation>Das Embedding-Modell berechnet Werte, die keine Zahlen sind. In den Einstellungen ein anderes wählen.</translation>
    </message>
    <message>
        <source>The embedding model did not answer in time. Ask again.</source>
        <translation>Das Embedding-Modell hat nicht rechtzeitig geantwortet. Erneut fragen.</translation>
    </message>
    <message>
        <source>The embeddings of its passages are damaged.</source>
        <translation>Die Vektoren seiner Abschnitte sind beschädigt.</translation>
    </message>
    <message>
        <source>The text</source>
        <translation>Der Text</translation>
    </message>
    <message>
        <source>Their embeddings could not be kept: {why}.</source>
        <translation>Ihre Vektoren ließen sich nicht speichern: {why}.</translation>
    </message>
    <message>
        <source>chapter {number}</source>
        <translation>Kapitel {number}</translation>
    </message>
    <message>
        <source>line {number}</source>
        <translation>Zeile {number}</translation>
    </message>
    <message>
        <source>page {number}</source>
        <translation>Seite {number}</translation>
    </message>
    <message>
        <source>{broken:,} of {pages:,} pages could not be read.</source>
        <translation>{broken:,} von {pages:,} Seiten ließen sich nicht lesen.</translation>
    </message>
    <message>
        <source>{missing:,} of {count:,} chapters are missing from the file.</source>
        <translation>{missing:,} von {count:,} Kapiteln fehlen in der Datei.</translation>
    </message>
    <message numerus="yes">
        <source>{n:,} chapters</source>
        <translation>
            <numerusform>1 Kapitel</numerusform>
            <numerusform>{n:,} Kapitel</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n:,} lines</source>
        <translation>
            <numerusform>1 Zeile</numerusform>
            <numerusform>{n:,} Zeilen</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n:,} of {pages:,} pages have no text: they are pictures.</source>
        <translation>
            <numerusform>1 von {pages:,} Seiten hat keinen Text: Sie ist ein Bild.</numerusform>
            <numerusform>{n:,} von {pages:,} Seiten haben keinen Text: Sie sind Bilder.</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n:,} pages</source>
        <translation>
            <numerusform>1 Seite</numerusform>
            <numerusform>{n:,} Seiten</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n:,} passages</source>
        <translation>
            <numerusform>1 Abschnitt</numerusform>
            <numerusform>{n:,} Abschnitte</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n:,} pictures in it cannot be read.</source>
        <translation>
            <numerusform>1 Bild darin lässt sich nicht lesen.</numerusform>
            <numerusform>{n:,} Bilder darin lassen sich nicht lesen.</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>{n:,} signs could not be decoded.</source>
        <translation>
            <numerusform>1 Zeichen ließ sich nicht decodieren.</numerusform>
            <numerusform>{n:,} Zeichen ließen sich nicht decodieren.</numerusform>
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
        <source>{name} cannot be read ({kind}).</source>
        <translation>{name} lässt sich nicht lesen ({kind}).</translation>
    </message>
    <message>
        <source>{name} cannot be read as a PDF: the file is damaged or incomplete.</source>
        <translation>{name} lässt sich nicht als PDF lesen: Die Datei ist beschädigt oder unvollständig.</translation>
    </message>
    <message>
        <source>{name} cannot be read: the archive inside it is damaged or incomplete.</source>
        <translation>{name} lässt sich nicht lesen: Das Archiv darin ist beschädigt oder unvollständig.</translation>
    </message>
    <message>
        <source>{name} has no text.</source>
        <translation>{name} enthält keinen Text.</translation>
    </message>
    <message numerus="yes">
        <source>{name} has no text: all its {n:,} pages are pictures. Run a text recognition (OCR) over it first.</source>
        <translation>
            <numerusform>{name} enthält keinen Text: Die einzige Seite ist ein Bild. Erst eine Texterkennung (OCR) darüber laufen lassen.</numerusform>
            <numerusform>{name} enthält keinen Text: Alle {n:,} Seiten sind Bilder. Erst eine Texterkennung (OCR) darüber laufen lassen.</numerusform>
        </translation>
    </message>
    <message>
        <source>{name} has {size:,} MB, and a document can have {most:,} MB.</source>
        <translation>{name} hat {size:,} MB, und ein Dokument kann {most:,} MB haben.</translation>
    </message>
    <message>
        <source>{name} is a PowerPoint presentation. Save it as PDF first.</source>
        <translation>{name} ist eine PowerPoint-Präsentation. Erst als PDF speichern.</translation>
    </message>
    <message>
        <source>{name} is a folder. Add the files inside it.</source>
        <translation>{name} ist ein Ordner. Bitte die Dateien darin hinzufügen.</translation>
    </message>
    <message>
        <source>{name} is a model. Open it with the model&apos;s menu above.</source>
        <translation>{name} ist ein Modell. Es lässt sich im Modellmenü oben öffnen.</translation>
    </message>
    <message>
        <source>{name} is a picture. A model that sees pictures reads it under a name that ends in .jpg.</source>
        <translation>{name} ist ein Bild. Ein Modell, das Bilder sieht, liest es unter einem Namen, der auf .jpg endet.</translation>
    </message>
    <message>
        <source>{name} is a picture. A model that sees pictures reads it under a name that ends in .png.</source>
        <translation>{name} ist ein Bild. Ein Modell, das Bilder sieht, liest es unter einem Namen, der auf .png endet.</translation>
    </message>
    <message>
        <source>{name} is an Excel workbook. Save the sheet as CSV first.</source>
        <translation>{name} ist eine Excel-Mappe. Erst das Blatt als CSV speichern.</translation>
    </message>
    <message>
        <source>{name} is an OpenDocument file. Save it as DOCX or PDF first.</source>
        <translation>{name} ist eine OpenDocument-Datei. Erst als DOCX oder PDF speichern.</translation>
    </message>
    <message>
        <source>{name} is an RTF file. Save it as DOCX or PDF first.</source>
        <translation>{name} ist eine RTF-Datei. Erst als DOCX oder PDF speichern.</translation>
    </message>
    <message>
        <source>{name} is an archive, and not a document. Unpack it and add the files inside.</source>
        <translation>{name} ist ein Archiv und kein Dokument. Bitte entpacken und die Dateien darin hinzufügen.</translation>
    </message>
    <message>
        <source>{name} is an old Office file. Save it as DOCX or PDF first.</source>
        <translation>{name} ist eine alte Office-Datei. Erst als DOCX oder PDF speichern.</translation>
    </message>
    <message>
        <source>{name} is empty.</source>
        <translation>{name} ist leer.</translation>
    </message>
    <message>
        <source>{name} is encrypted. Save a copy without a password first.</source>
        <translation>{name} ist verschlüsselt. Erst eine Kopie ohne Passwort speichern.</translation>
    </message>
    <message>
        <source>{name} is not a file.</source>
        <translation>{name} ist keine Datei.</translation>
    </message>
    <message>
        <source>{name} is not a text, and no kind of document that can be read here.</source>
        <translation>{name} ist kein Text und keine Art von Dokument, die sich hier lesen lässt.</translation>
    </message>
    <message>
        <source>{name} is not there any more.</source>
        <translation>{name} ist nicht mehr da.</translation>
    </message>
    <message>
        <source>{name} is protected against copying (DRM), so its text cannot be read.</source>
        <translation>{name} ist kopiergeschützt (DRM), der Text lässt sich daher nicht lesen.</translation>
    </message>
    <message>
        <source>{name} may not be read: its permissions do not allow it.</source>
        <translation>{name} darf nicht gelesen werden: Die Zugriffsrechte erlauben es nicht.</translation>
    </message>
    <message>
        <source>{name} takes more than {memory:,} MB of memory to read, so it was given up.</source>
        <translation>{name} braucht beim Lesen mehr als {memory:,} MB Speicher, daher wurde es aufgegeben.</translation>
    </message>
    <message>
        <source>{name} took more than {seconds:.0f} seconds to read, so it was given up.</source>
        <translation>Das Lesen von {name} dauerte mehr als {seconds:.0f} Sekunden, daher wurde es aufgegeben.</translation>
    </message>
    <message>
        <source>{name} unpacks to more than {most:,} MB, so it was not opened.</source>
        <translation>{name} wird entpackt größer als {most:,} MB, daher wurde es nicht geöffnet.</translation>
    </message>
</context>
</TS>
