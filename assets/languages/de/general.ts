<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de" sourcelanguage="en">
<context>
    <name>kvasir</name>
    <message>
        <source>Open it now</source>
        <translation>Jetzt öffnen</translation>
    </message>
    <message>
        <source>Opening {name}</source>
        <translation>{name} zu öffnen</translation>
    </message>
    <message>
        <source>There is no {path}. Choose a GGUF file or the folder of a model with the model menu.</source>
        <translation>{path} gibt es nicht. Im Modellmenü lässt sich eine GGUF-Datei oder der Ordner eines Modells wählen.</translation>
    </message>
    <message>
        <source>{name} is not a GGUF file. Choose a .gguf file, or the folder of a model that has several files.</source>
        <translation>{name} ist keine GGUF-Datei. Zu wählen ist eine .gguf-Datei oder der Ordner eines Modells aus mehreren Dateien.</translation>
    </message>
    <message>
        <source>{path} cannot be read ({why}). Allow reading it, then open it again.</source>
        <translation>{path} lässt sich nicht lesen ({why}). Erst das Lesen erlauben, dann erneut öffnen.</translation>
    </message>
    <message>
        <source>{path} holds no model. Choose a folder with config.json in it, or a GGUF file.</source>
        <translation>{path} enthält kein Modell. Zu wählen ist ein Ordner mit config.json oder eine GGUF-Datei.</translation>
    </message>
    <message>
        <source>{path} is not a file. Choose a GGUF file or the folder of a model with the model menu.</source>
        <translation>{path} ist keine Datei. Im Modellmenü lässt sich eine GGUF-Datei oder der Ordner eines Modells wählen.</translation>
    </message>
</context>
</TS>
