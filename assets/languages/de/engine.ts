<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de" sourcelanguage="en">
<context>
    <name>kvasir</name>
    <message>
        <source>%</source>
        <translation>%</translation>
    </message>
    <message>
        <source>1</source>
        <translation>1</translation>
    </message>
    <message>
        <source>1,024 tokens</source>
        <translation>1.024 Token</translation>
    </message>
    <message>
        <source>1.5 times</source>
        <translation>1,5-mal</translation>
    </message>
    <message>
        <source>10 times</source>
        <translation>10-mal</translation>
    </message>
    <message>
        <source>100 requests of ShareGPT, none with a common prefix.</source>
        <translation>100 Anfragen aus ShareGPT, keine mit gemeinsamem Präfix.</translation>
    </message>
    <message>
        <source>100 times</source>
        <translation>100-mal</translation>
    </message>
    <message>
        <source>12 users ask about one long text. How much sooner does the first word come?</source>
        <translation>12 Personen fragen nach einem langen Text. Wie viel früher kommt das erste Wort?</translation>
    </message>
    <message>
        <source>128 answers</source>
        <translation>128 Antworten</translation>
    </message>
    <message>
        <source>16 answers</source>
        <translation>16 Antworten</translation>
    </message>
    <message>
        <source>16 bits</source>
        <translation>16 Bit</translation>
    </message>
    <message>
        <source>16-bit</source>
        <translation>16 Bit</translation>
    </message>
    <message>
        <source>2</source>
        <translation>2</translation>
    </message>
    <message>
        <source>2 answers</source>
        <translation>2 Antworten</translation>
    </message>
    <message>
        <source>2 long answers fill the batch when short requests arrive. How much sooner is a request done, in the mean?</source>
        <translation>2 lange Antworten füllen den Stapel, wenn kurze Anfragen eintreffen. Wie viel früher ist eine Anfrage im Mittel fertig?</translation>
    </message>
    <message>
        <source>2 times</source>
        <translation>2-mal</translation>
    </message>
    <message>
        <source>2 times as much</source>
        <translation>2-mal so viel</translation>
    </message>
    <message>
        <source>2 times less</source>
        <translation>2-mal weniger</translation>
    </message>
    <message>
        <source>20 times</source>
        <translation>20-mal</translation>
    </message>
    <message>
        <source>256 answers</source>
        <translation>256 Antworten</translation>
    </message>
    <message>
        <source>256 tokens</source>
        <translation>256 Token</translation>
    </message>
    <message>
        <source>3</source>
        <translation>3</translation>
    </message>
    <message>
        <source>3 bits, GPTQ</source>
        <translation>3 Bit, GPTQ</translation>
    </message>
    <message>
        <source>3 times</source>
        <translation>3-mal</translation>
    </message>
    <message>
        <source>32 answers</source>
        <translation>32 Antworten</translation>
    </message>
    <message>
        <source>32-bit</source>
        <translation>32 Bit</translation>
    </message>
    <message>
        <source>4</source>
        <translation>4</translation>
    </message>
    <message>
        <source>4 answers</source>
        <translation>4 Antworten</translation>
    </message>
    <message>
        <source>4 bits</source>
        <translation>4 Bit</translation>
    </message>
    <message>
        <source>4 bits, AWQ</source>
        <translation>4 Bit, AWQ</translation>
    </message>
    <message>
        <source>4 bits, GPTQ</source>
        <translation>4 Bit, GPTQ</translation>
    </message>
    <message>
        <source>4 bits, keys rotated</source>
        <translation>4 Bit, Schlüssel gedreht</translation>
    </message>
    <message>
        <source>4 bits, rounded to nearest</source>
        <translation>4 Bit, gerundet</translation>
    </message>
    <message>
        <source>4 or more</source>
        <translation>4 oder mehr</translation>
    </message>
    <message>
        <source>4 times</source>
        <translation>4-mal</translation>
    </message>
    <message>
        <source>4 times as much</source>
        <translation>4-mal so viel</translation>
    </message>
    <message>
        <source>4 times less</source>
        <translation>4-mal weniger</translation>
    </message>
    <message>
        <source>4,096 tokens in sight</source>
        <translation>4.096 Token in Sicht</translation>
    </message>
    <message>
        <source>4-bit</source>
        <translation>4 Bit</translation>
    </message>
    <message>
        <source>4-bit matmul kernel</source>
        <translation>4-Bit-Matmul-Kernel</translation>
    </message>
    <message>
        <source>5 times</source>
        <translation>5-mal</translation>
    </message>
    <message>
        <source>50 times less</source>
        <translation>50-mal weniger</translation>
    </message>
    <message>
        <source>512 tokens</source>
        <translation>512 Token</translation>
    </message>
    <message>
        <source>64 answers</source>
        <translation>64 Antworten</translation>
    </message>
    <message>
        <source>64 tokens</source>
        <translation>64 Token</translation>
    </message>
    <message>
        <source>8 answers</source>
        <translation>8 Antworten</translation>
    </message>
    <message>
        <source>8 bits</source>
        <translation>8 Bit</translation>
    </message>
    <message>
        <source>8 requests arrive in short order. How many more are done in a minute than one by one?</source>
        <translation>8 Anfragen treffen kurz nacheinander ein. Wie viele mehr als einzeln sind in einer Minute fertig?</translation>
    </message>
    <message>
        <source>8 times</source>
        <translation>8-mal</translation>
    </message>
    <message>
        <source>8 times as much</source>
        <translation>8-mal so viel</translation>
    </message>
    <message>
        <source>8-bit</source>
        <translation>8 Bit</translation>
    </message>
    <message>
        <source>A KV cache in 2 bits takes 2.6 times less memory at its peak, weights included, and lets 4 times as many requests run at 2.35 to 3.47 times the throughput.</source>
        <translation>Ein KV-Cache in 2 Bit braucht in der Spitze 2,6-mal weniger Speicher, Gewichte eingerechnet, und lässt 4-mal so viele Anfragen mit dem 2,35- bis 3,47-fachen Durchsatz laufen.</translation>
    </message>
    <message>
        <source>A KV cache of two bits (KIVI)</source>
        <translation>2-Bit-KV-Cache (KIVI)</translation>
    </message>
    <message>
        <source>A chat that never ends needs a cache that never ends, unless only its last tokens are kept: a sliding window. Many models look at their very first tokens all the time (attention sinks) and fail without them, so those few stay as well.</source>
        <translation>Ein Chat ohne Ende braucht einen Cache ohne Ende, es sei denn, nur die letzten Token bleiben: ein gleitendes Fenster. Viele Modelle blicken ständig auf ihre allerersten Token (Attention Sinks) und versagen ohne sie, darum bleiben auch diese wenigen.</translation>
    </message>
    <message>
        <source>A cheap method drafts the next few tokens and the model checks them all in one pass, keeping exactly those it would have written itself. Auto uses whichever method has paid best so far, and none while drafts cost more than they save.</source>
        <translation>Ein billiges Verfahren entwirft die nächsten Token, und das Modell prüft sie alle in einem Durchgang und behält genau die, die es selbst geschrieben hätte. „auto“ nimmt das Verfahren, das sich bisher am meisten lohnte, und keines, solange Entwürfe mehr kosten, als sie sparen.</translation>
    </message>
    <message>
        <source>A dense model whose small sibling drafts for it.</source>
        <translation>Ein dichtes Modell, für das sein kleines Geschwister entwirft.</translation>
    </message>
    <message>
        <source>A draft model of 77M parameters makes one of 11B 3.4 times as fast where 75 % of its tokens are accepted, and 2.3 times where 53 % are.</source>
        <translation>Ein Entwurfsmodell mit 77M Parametern macht eines mit 11B 3,4-mal so schnell, wo 75 % seiner Token angenommen werden, und 2,3-mal, wo es 53 % sind.</translation>
    </message>
    <message>
        <source>A draft runs 4 tokens ahead while a text is edited. How much faster is it written?</source>
        <translation>Ein Entwurf eilt 4 Token voraus, während ein Text überarbeitet wird. Wie viel schneller ist er geschrieben?</translation>
    </message>
    <message>
        <source>A large model needs one whole pass for each word that it writes, even for a word that anybody could have foreseen. A cheap draft proposes the next few words, the model checks all of them in one pass, and only those that it would have written itself stay.</source>
        <translation>Ein großes Modell braucht für jedes Wort einen ganzen Durchgang, auch für eines, das jeder vorhergesehen hätte. Ein billiger Entwurf schlägt die nächsten Wörter vor, das Modell prüft alle in einem Durchgang, und nur die bleiben, die es selbst geschrieben hätte.</translation>
    </message>
    <message>
        <source>A larger batch gives more tokens a second in all, and each answer fewer: the best size is the largest one whose readers do not mind.</source>
        <translation>Ein größerer Stapel gibt insgesamt mehr Token je Sekunde und jeder Antwort weniger: Am besten ist der größte, der beim Lesen noch nicht stört.</translation>
    </message>
    <message>
        <source>A larger draft model is accepted more often and still slower: 3.4 times with 77M parameters, 2.8 with 250M, 1.7 with 800M.</source>
        <translation>Ein größeres Entwurfsmodell wird öfter angenommen und ist doch langsamer: 3,4-mal mit 77M Parametern, 2,8-mal mit 250M, 1,7-mal mit 800M.</translation>
    </message>
    <message>
        <source>A long answer, times the shortest</source>
        <translation>Lange Antwort, Vielfaches der kürzesten</translation>
    </message>
    <message>
        <source>A long prompt arrives while 4 answers are written. How much shorter is their longest pause?</source>
        <translation>Ein langer Prompt trifft ein, während 4 Antworten geschrieben werden. Wie viel kürzer ist deren längste Pause?</translation>
    </message>
    <message>
        <source>A long prompt takes many times as long to read as a word takes to write, and while a pass through the model reads all of it, everybody else&apos;s answer stands still. Chunked prefill cuts it into chunks, each of which shares a pass with the answers under way; step targets make them as small as a target time between words asks for.</source>
        <translation>Einen langen Prompt zu lesen dauert vielmal so lange, wie ein Wort zu schreiben, und während ein Durchgang durch das Modell ihn ganz liest, stehen alle anderen Antworten still. Chunked Prefill teilt ihn in Stücke, die sich jeweils einen Durchgang mit den laufenden Antworten teilen; Zeitziele machen sie so klein, wie es eine Zielzeit zwischen Wörtern verlangt.</translation>
    </message>
    <message>
        <source>A model writes one token at a time, and for each it looks back at the whole text: without a memory it would compute all of that text again. The KV cache keeps what attention needs of every token (its keys and values), so that each new token costs one row of work.</source>
        <translation>Ein Modell schreibt ein Token nach dem anderen und blickt für jedes auf den ganzen Text zurück: Ohne Gedächtnis würde es diesen Text jedes Mal neu berechnen. Der KV-Cache bewahrt auf, was die Attention von jedem Token braucht (Schlüssel und Werte), sodass ein neues Token nur eine Zeile Arbeit kostet.</translation>
    </message>
    <message>
        <source>A pass through the model reads all weights, for one answer as for many. More answers at once share that, so that all together get more tokens a second, while each pass takes longer and every reader waits longer for the next word.</source>
        <translation>Ein Durchgang durch das Modell liest alle Gewichte, für eine Antwort wie für viele. Mehr Antworten zugleich teilen sich das, sodass alle zusammen mehr Token je Sekunde bekommen, während jeder Durchgang länger dauert und alle länger auf das nächste Wort warten.</translation>
    </message>
    <message>
        <source>A prompt that is read in chunks makes nobody wait longer than a chunk takes.</source>
        <translation>Ein Prompt, der in Stücken gelesen wird, lässt niemanden länger warten, als ein Stück dauert.</translation>
    </message>
    <message>
        <source>A second model that drafts must be found, loaded and run, and it does not know what the large one is about to say. Medusa and EAGLE instead draft from the large model&apos;s own thoughts, with a few small layers on top of it, and offer a tree of drafts of which one path may be right.</source>
        <translation>Ein zweites Modell zum Entwerfen muss gefunden, geladen und ausgeführt werden, und es weiß nicht, was das große sagen will. Medusa und EAGLE entwerfen stattdessen aus den inneren Zuständen des großen Modells, mit wenigen kleinen Schichten darauf, und bieten einen Baum von Entwürfen, von dem ein Pfad richtig sein kann.</translation>
    </message>
    <message>
        <source>A sliding window does not work with a KIVI cache: choose another KV cache precision first.</source>
        <translation>Ein gleitendes Fenster geht nicht mit einem KIVI-Cache: zuerst eine andere KV-Genauigkeit wählen.</translation>
    </message>
    <message>
        <source>A small all-rounder with a long context that also sees pictures.</source>
        <translation>Ein kleiner Allrounder mit langem Kontext, der auch Bilder sieht.</translation>
    </message>
    <message>
        <source>A small model whose data and recipe are open.</source>
        <translation>Ein kleines Modell, dessen Daten und Rezept offen sind.</translation>
    </message>
    <message>
        <source>A strong all-rounder that also sees pictures; best on a GPU of 24 GB.</source>
        <translation>Ein starker Allrounder, auch für Bilder; ideal mit GPU ab 24 GB.</translation>
    </message>
    <message>
        <source>A text shorter than the budget is read whole, and so are prompts; where many places matter a little, as for a summary, a small budget loses something.</source>
        <translation>Ein Text, der kürzer als das Budget ist, wird ganz gelesen, ebenso Prompts; wo viele Stellen ein wenig zählen, etwa für eine Zusammenfassung, verliert ein kleines Budget etwas.</translation>
    </message>
    <message>
        <source>A token needs few pages of a long text, and which ones can be told without reading them.</source>
        <translation>Ein Token braucht wenige Seiten eines langen Textes, und welche, lässt sich sagen, ohne sie zu lesen.</translation>
    </message>
    <message>
        <source>A token takes 106 ms with 4,096 tokens in sight instead of 2,355 ms when the window is computed again for each: 22.2 times as fast.</source>
        <translation>Ein Token dauert mit 4.096 Token im Blick 106 ms statt 2.355 ms, wenn das Fenster für jedes neu berechnet wird: 22,2-mal so schnell.</translation>
    </message>
    <message>
        <source>A window of 1,024 tokens alone gives a perplexity of 5,158.07, 4 first tokens and 1,020 recent ones 5.40; even 4 line breaks in their place do, with 5.60.</source>
        <translation>Ein Fenster von 1.024 Token allein gibt eine Perplexität von 5.158,07, 4 erste und 1.020 letzte Token 5,40; selbst 4 Zeilenumbrüche an deren Stelle genügen, mit 5,60.</translation>
    </message>
    <message>
        <source>AWQ</source>
        <translation>AWQ</translation>
    </message>
    <message>
        <source>Acceptance rule</source>
        <translation>Annahmeregel</translation>
    </message>
    <message>
        <source>Activations</source>
        <translation>Aktivierungen</translation>
    </message>
    <message>
        <source>Among requests that the policy treats alike, the one with the longest beginning in the cache starts first. A request waits while another computes the same beginning, whatever this is set to.</source>
        <translation>Von Anfragen, die die Strategie gleich behandelt, beginnt die mit dem längsten Anfang im Cache. Unabhängig davon wartet eine Anfrage, solange eine andere denselben Anfang berechnet.</translation>
    </message>
    <message>
        <source>An all-rounder for 8 GB of memory that also sees pictures.</source>
        <translation>Ein Allrounder für 8 GB Speicher, der auch Bilder sieht.</translation>
    </message>
    <message>
        <source>An all-rounder that also sees pictures; best on a GPU of 8 GB.</source>
        <translation>Ein Allrounder, auch für Bilder; ideal mit GPU ab 8 GB.</translation>
    </message>
    <message>
        <source>Answers have very different lengths, which nobody knows in advance: in order of arrival, a few long ones keep everybody behind them waiting. A multi-level feedback queue serves first who had little so far: an answer that goes on for long gives way, keeps its KV pages, and comes back.</source>
        <translation>Antworten sind sehr verschieden lang, und niemand kennt ihre Länge im Voraus: Der Reihe nach lassen wenige lange alle hinter sich warten. Eine mehrstufige Warteschlange (Multi-Level Feedback Queue) bedient zuerst, wer bisher wenig bekam: Eine Antwort, die lange dauert, macht Platz, behält ihre KV-Seiten und kommt wieder.</translation>
    </message>
    <message>
        <source>Answers that are written</source>
        <translation>Antworten, die geschrieben werden</translation>
    </message>
    <message>
        <source>Answers that share each pass through the model are done sooner, and nobody waits for the longest one.</source>
        <translation>Antworten, die sich jeden Durchgang durch das Modell teilen, sind früher fertig, und niemand wartet auf die längste.</translation>
    </message>
    <message>
        <source>Arithmetic and logic in little memory.</source>
        <translation>Rechnen und Logik in wenig Speicher.</translation>
    </message>
    <message>
        <source>At 32k tokens a token takes 21.2 ms with a budget of 2,048 instead of 36.8 ms: 1.74 times as fast, and 2.23 times with 4-bit weights.</source>
        <translation>Bei 32k Token dauert ein Token mit einem Budget von 2.048 21,2 ms statt 36,8 ms: 1,74-mal so schnell, mit 4-Bit-Gewichten 2,23-mal.</translation>
    </message>
    <message>
        <source>At the same latency of 190 ms a token, batches that change at every step serve 6.81 requests a second instead of 0.185: 36.9 times as many.</source>
        <translation>Bei gleicher Latenz von 190 ms je Token bedienen Stapel, die sich in jedem Schritt ändern, 6,81 Anfragen je Sekunde statt 0,185: 36,9-mal so viele.</translation>
    </message>
    <message>
        <source>At the same mean latency a server takes up to 31.4 times the requests a second of vLLM, and up to 17.9 times at the same tail latency.</source>
        <translation>Bei gleicher mittlerer Latenz nimmt ein Server bis zu 31,4-mal so viele Anfragen je Sekunde an wie vLLM, bei gleicher Latenz der langsamsten bis zu 17,9-mal so viele.</translation>
    </message>
    <message>
        <source>Attention</source>
        <translation>Attention</translation>
    </message>
    <message>
        <source>Attention alone is up to 7.03 times as fast at 32k tokens with a budget of 2,048.</source>
        <translation>Die Attention allein ist bei 32k Token mit einem Budget von 2.048 bis zu 7,03-mal so schnell.</translation>
    </message>
    <message>
        <source>Batch ITL, ms</source>
        <translation>ITL im Hintergrund, ms</translation>
    </message>
    <message>
        <source>Batch TTFT, s</source>
        <translation>TTFT im Hintergrund, s</translation>
    </message>
    <message>
        <source>Batch invariance</source>
        <translation>Stapelinvarianz</translation>
    </message>
    <message>
        <source>Batch size</source>
        <translation>Stapelgröße</translation>
    </message>
    <message>
        <source>Batch-invariant arithmetic multiplies any number of rows by one kernel.</source>
        <translation>Stapelunabhängiges Rechnen multipliziert jede Anzahl von Zeilen mit demselben Kernel.</translation>
    </message>
    <message>
        <source>Batch-invariant arithmetic plans every row on the host, which cannot be captured.</source>
        <translation>Stapelunabhängiges Rechnen plant jede Zeile auf dem Prozessor; das lässt sich nicht aufzeichnen.</translation>
    </message>
    <message>
        <source>Batch-invariant arithmetic reads every answer&apos;s keys and values by themselves.</source>
        <translation>Stapelunabhängiges Rechnen liest die Schlüssel und Werte jeder Antwort für sich.</translation>
    </message>
    <message>
        <source>Beyond the window, how much worse does the model get (perplexity) if the first 4 tokens are dropped?</source>
        <translation>Wie viel schlechter wird das Modell jenseits des Fensters (Perplexität), wenn die ersten 4 Token wegfallen?</translation>
    </message>
    <message>
        <source>Cache</source>
        <translation>Cache</translation>
    </message>
    <message>
        <source>Cache-aware scheduling</source>
        <translation>Cache-Treffer zuerst</translation>
    </message>
    <message>
        <source>Chatbot Arena, one SGLang worker a model: system messages, example images and earlier turns of a chat were shared.</source>
        <translation>Chatbot Arena, ein SGLang-Prozess je Modell: Gemeinsam waren Systemnachrichten, Beispielbilder und frühere Runden eines Chats.</translation>
    </message>
    <message>
        <source>Chats in many languages and sees pictures; trained for its 4 bits.</source>
        <translation>Chats in vielen Sprachen, sieht Bilder; für seine 4 Bit trainiert.</translation>
    </message>
    <message>
        <source>Chats in many languages; trained for its 4 bits.</source>
        <translation>Chats in vielen Sprachen; für seine 4 Bit trainiert.</translation>
    </message>
    <message>
        <source>Chats without a GPU, in several languages.</source>
        <translation>Chats ohne GPU, in mehreren Sprachen.</translation>
    </message>
    <message>
        <source>Chooses the code that multiplies with packed weights. Kvasir&apos;s own, in C for processors and in Triton for GPUs, turns codes into numbers in a register, so that memory is read at nearly its full speed.</source>
        <translation>Wählt den Code, der mit gepackten Gewichten multipliziert. Kvasirs eigener, in C für Prozessoren und in Triton für GPUs, macht aus Codes im Register Zahlen, sodass der Speicher fast mit voller Geschwindigkeit gelesen wird.</translation>
    </message>
    <message>
        <source>Chunked prefill</source>
        <translation>Chunked Prefill</translation>
    </message>
    <message>
        <source>Chunks of the prompt</source>
        <translation>Stücke des Prompts</translation>
    </message>
    <message>
        <source>CoQA</source>
        <translation>CoQA</translation>
    </message>
    <message>
        <source>Code and tools over long texts with a small cache.</source>
        <translation>Code und Werkzeuge über lange Texte mit kleinem Cache.</translation>
    </message>
    <message>
        <source>Code of whole projects; only 3B parameters run per token.</source>
        <translation>Code ganzer Projekte; nur 3B Parameter rechnen je Token.</translation>
    </message>
    <message>
        <source>Computes a long prompt in chunks, between which running answers go on. Without it every answer waits until the whole prompt has been computed.</source>
        <translation>Berechnet einen langen Prompt in Stücken, zwischen denen laufende Antworten weitergehen. Ohne dies wartet jede Antwort, bis der ganze Prompt berechnet ist.</translation>
    </message>
    <message>
        <source>Computes every row in the same order whatever else is in the batch, so that equal settings give equal text to the last token. It is slower; with it one can prove that a lossless switch changes nothing.</source>
        <translation>Berechnet jede Zeile in derselben Reihenfolge, was auch sonst im Stapel ist, sodass gleiche Einstellungen bis zum letzten Token gleichen Text geben. Es ist langsamer; damit lässt sich beweisen, dass ein verlustfreier Schalter nichts ändert.</translation>
    </message>
    <message>
        <source>Continuous batching</source>
        <translation>Continuous Batching</translation>
    </message>
    <message>
        <source>Counted</source>
        <translation>Gezählt</translation>
    </message>
    <message>
        <source>Decides when a chat gets memory for its keys and values. Paged allocation (PagedAttention) hands out pages of sixteen tokens as the text grows, so that memory is not held for tokens that never come.</source>
        <translation>Bestimmt, wann ein Chat Speicher für seine Schlüssel und Werte bekommt. Seitenweise Zuteilung (PagedAttention) vergibt mit wachsendem Text Seiten zu sechzehn Token, sodass kein Speicher für Token belegt wird, die nie kommen.</translation>
    </message>
    <message>
        <source>Decides which draft tokens are accepted. The lossless rule keeps a token only if it is the one that would have been drawn without speculation.</source>
        <translation>Bestimmt, welche Entwurfs-Token angenommen werden. Die verlustfreie Regel behält ein Token nur, wenn es auch ohne Spekulation gezogen worden wäre.</translation>
    </message>
    <message>
        <source>Decides which earlier tokens a new token may look at: all of them, the last ones and the first four (StreamingLLM), or the pages that matter most (QUEST). The window keeps memory constant; QUEST keeps everything and reads less of it.</source>
        <translation>Bestimmt, welche früheren Token ein neues Token ansehen darf: alle, die letzten und die ersten vier (StreamingLLM) oder die wichtigsten Seiten (QUEST). Mit dem Fenster bleibt der Speicher konstant; QUEST behält alles und liest weniger davon.</translation>
    </message>
    <message>
        <source>Decides which requests take part in a step when there are more than the batch or the memory holds. Those that do not wait, with their pages kept while there is room.</source>
        <translation>Bestimmt, welche Anfragen an einem Schritt teilnehmen, wenn es mehr sind, als Stapel oder Speicher fassen. Die übrigen warten; ihre Seiten bleiben, solange Platz ist.</translation>
    </message>
    <message>
        <source>Describes pictures, reads tables and handwriting.</source>
        <translation>Beschreibt Bilder, liest Tabellen und Handschrift.</translation>
    </message>
    <message>
        <source>Draft length</source>
        <translation>Entwurfslänge</translation>
    </message>
    <message>
        <source>Draft tree size</source>
        <translation>Entwurfsbaumgröße</translation>
    </message>
    <message>
        <source>EAGLE</source>
        <translation>EAGLE</translation>
    </message>
    <message>
        <source>EAGLE head</source>
        <translation>EAGLE-Kopf</translation>
    </message>
    <message>
        <source>EAGLE makes LLaMA2-Chat 70B 3.01 times as fast for one request and 2.40 times for four at once.</source>
        <translation>EAGLE macht LLaMA2-Chat 70B bei einer Anfrage 3,01-mal und bei vier zugleich 2,40-mal so schnell.</translation>
    </message>
    <message>
        <source>EAGLE-3</source>
        <translation>EAGLE-3</translation>
    </message>
    <message>
        <source>EAGLE-3 makes 6.65 tokens a step where EAGLE makes 3.98 and Medusa 2.59.</source>
        <translation>EAGLE-3 macht 6,65 Token je Schritt, EAGLE 3,98 und Medusa 2,59.</translation>
    </message>
    <message>
        <source>Early launch</source>
        <translation>Früher Start</translation>
    </message>
    <message>
        <source>Eight codes lie hidden in a text of 8,000 tokens. If each head may read no more than 64, how many times less is read for a token?</source>
        <translation>In einem Text von 8.000 Token sind acht Codes versteckt. Wievielmal weniger wird je Token gelesen, wenn jeder Kopf höchstens 64 lesen darf?</translation>
    </message>
    <message>
        <source>Error of attention scores, Llama-2-13B</source>
        <translation>Fehler der Attention-Werte, Llama-2-13B</translation>
    </message>
    <message>
        <source>Exact matches in CoQA, Llama-2-7B</source>
        <translation>Exakte Treffer in CoQA, Llama-2-7B</translation>
    </message>
    <message>
        <source>Exit after layer</source>
        <translation>Ausstiegsschicht</translation>
    </message>
    <message>
        <source>FP8 (e4m3)</source>
        <translation>FP8 (e4m3)</translation>
    </message>
    <message>
        <source>For any processor: short answers, extraction and sorting of texts.</source>
        <translation>Für jeden Prozessor: kurze Antworten, Auszüge und Sortieren von Texten.</translation>
    </message>
    <message>
        <source>For each new token the model looks at the keys and values of all that came before, so the longer the text, the longer a token takes. QUEST keeps of every page of sixteen tokens the least and the greatest key, and reads only those pages that may matter to this token.</source>
        <translation>Für jedes neue Token sieht das Modell die Schlüssel und Werte von allem Bisherigen an; je länger der Text, desto länger dauert ein Token. QUEST merkt sich von jeder Seite zu sechzehn Token den kleinsten und den größten Schlüssel und liest nur die Seiten, die für dieses Token wichtig sein können.</translation>
    </message>
    <message>
        <source>For every token all of a model&apos;s weights are read from memory, at two bytes each as models are published. Quantisation rounds groups of weights to 8 or 4 bits with a scale for each group, so that a larger model fits and fewer bytes are read.</source>
        <translation>Für jedes Token werden alle Gewichte eines Modells aus dem Speicher gelesen, zwei Bytes je Gewicht, wie Modelle veröffentlicht werden. Quantisierung rundet Gruppen von Gewichten auf 8 oder 4 Bit mit einer Skala je Gruppe, sodass ein größeres Modell Platz hat und weniger Bytes gelesen werden.</translation>
    </message>
    <message>
        <source>Forced tokens at once</source>
        <translation>Erzwungene Token (auf einmal)</translation>
    </message>
    <message>
        <source>GPT-3 175B on 16 A100 (40 GB), made-up requests of 32 to 512 tokens that generate 1 to 128, arriving at random, against FasterTransformer with request-level batches.</source>
        <translation>GPT-3 175B auf 16 A100 (40 GB), erdachte Anfragen von 32 bis 512 Token, die 1 bis 128 erzeugen und zufällig eintreffen, gegen FasterTransformer mit Stapeln aus ganzen Anfragen.</translation>
    </message>
    <message>
        <source>GPTQ</source>
        <translation>GPTQ</translation>
    </message>
    <message>
        <source>Gemma 4 assistant</source>
        <translation>Gemma-4-Assistent</translation>
    </message>
    <message>
        <source>Gives a long prompt only as many tokens of a step as keep the time between the tokens of running answers below their target, 50 ms for chats of the window and 200 ms for requests by HTTP, by what steps were measured to take. Where steps take longer anyway, a prompt gets 16 tokens of each.</source>
        <translation>Gibt einem langen Prompt in jedem Schritt nur so viele Token, dass die Zeit zwischen den Token laufender Antworten unter ihrem Ziel bleibt: 50 ms für Chats des Fensters, 200 ms für Anfragen über HTTP, nach der gemessenen Dauer der Schritte. Dauern die Schritte ohnehin länger, bekommt ein Prompt 16 Token von jedem.</translation>
    </message>
    <message>
        <source>Gives up the keys and values that layers with a sliding window will not look at again, so that only the layers that look at everything grow with the text. Without it every layer keeps the whole text.</source>
        <translation>Gibt die Schlüssel und Werte auf, die Schichten mit gleitendem Fenster nicht mehr ansehen, sodass nur die Schichten mit dem Text wachsen, die alles ansehen. Ohne dies behält jede Schicht den ganzen Text.</translation>
    </message>
    <message>
        <source>Grouping keys along tokens makes the error of the attention scores 47.00 instead of 9.60 along channels, because a few channels are outliers.</source>
        <translation>Schlüssel je Token zu gruppieren macht den Fehler der Attention-Werte 47,00 statt 9,60 je Kanal, weil wenige Kanäle Ausreißer sind.</translation>
    </message>
    <message>
        <source>H2O</source>
        <translation>H2O</translation>
    </message>
    <message>
        <source>Hadamard rotation of keys</source>
        <translation>Hadamard-Drehung (Schlüssel)</translation>
    </message>
    <message>
        <source>How many bits an element of a key takes, and one more for its share of scale and minimum. Keys decide which tokens attention looks at and suffer first: models with few KV heads are better served by 4.</source>
        <translation>Bits je Element eines Schlüssels, dazu eines für seinen Anteil an Skala und Minimum. Schlüssel entscheiden, welche Token die Attention ansieht, und leiden zuerst: Modellen mit wenigen KV-Köpfen dienen 4 besser.</translation>
    </message>
    <message>
        <source>How many bits an element of a value takes, and one more for its share of scale and minimum. Errors of values are averaged over the tokens that attention looks at, so 2 bits do less harm here.</source>
        <translation>Bits je Element eines Wertes, dazu eines für seinen Anteil an Skala und Minimum. Fehler der Werte mitteln sich über die Token, die die Attention ansieht; 2 Bit schaden hier deshalb weniger.</translation>
    </message>
    <message>
        <source>How many of the last tokens the sliding window keeps. Whole pages are kept, so it may be up to fifteen more.</source>
        <translation>So viele der letzten Token behält das gleitende Fenster. Behalten werden ganze Seiten, es können also bis zu fünfzehn mehr sein.</translation>
    </message>
    <message>
        <source>How many of the model&apos;s layers draft under early exit. More layers draft better and cost more; auto takes what was found for this model, or a quarter of them.</source>
        <translation>So viele Schichten des Modells entwerfen beim frühen Ausstieg. Mehr Schichten entwerfen besser und kosten mehr; „auto“ nimmt, was für dieses Modell gefunden wurde, oder ein Viertel.</translation>
    </message>
    <message>
        <source>How many times as many chats fit into the same memory at once?</source>
        <translation>Wievielmal so viele Chats haben zugleich im selben Speicher Platz?</translation>
    </message>
    <message>
        <source>How many times less memory do the weights take with 4 bits for each weight of the layers?</source>
        <translation>Wievielmal weniger Speicher brauchen die Gewichte mit 4 Bit für jedes Gewicht der Schichten?</translation>
    </message>
    <message>
        <source>How many times the tokens a second of one answer do 8 at once give?</source>
        <translation>Wievielmal so viele Token je Sekunde wie eine Antwort geben 8 zugleich?</translation>
    </message>
    <message>
        <source>How many tokens Medusa heads, an EAGLE head and MTP layers draft in one step, many of them alternatives to each other. A size no larger than the draft length gives a single chain, as does QUEST.</source>
        <translation>So viele Token entwerfen Medusa-Köpfe, ein EAGLE-Kopf und MTP-Schichten in einem Schritt, viele davon als Alternativen zueinander. Nicht größer als die Entwurfslänge, ergibt sich eine einzige Kette, ebenso mit QUEST.</translation>
    </message>
    <message>
        <source>How many tokens are drafted ahead in each step. Auto follows the measured acceptance rate and the measured cost of checking.</source>
        <translation>So viele Token werden in jedem Schritt voraus entworfen. „auto“ folgt der gemessenen Annahmequote und den gemessenen Kosten des Prüfens.</translation>
    </message>
    <message>
        <source>How many tokens does the best of these methods write in one step of an answer?</source>
        <translation>Wie viele Token schreibt das beste dieser Verfahren in einem Schritt einer Antwort?</translation>
    </message>
    <message>
        <source>How many tokens each head of a new token reads, in whole pages of sixteen, one of which is the page that is being written. The first two layers read everything, and so do the tokens of the prompt.</source>
        <translation>So viele Token liest jeder Kopf eines neuen Tokens, in ganzen Seiten zu sechzehn; eine davon ist die Seite, die gerade geschrieben wird. Die ersten beiden Schichten lesen alles, ebenso die Token des Prompts.</translation>
    </message>
    <message>
        <source>In a month of real chats 74.1 % of Vicuna-33B&apos;s prompt tokens came from the cache, which made its first token come 1.7 times as fast on average.</source>
        <translation>In einem Monat echter Chats kamen 74,1 % der Prompt-Token von Vicuna-33B aus dem Cache; sein erstes Token kam dadurch im Mittel 1,7-mal so schnell.</translation>
    </message>
    <message>
        <source>In a short chat the last 128 tokens, which stay in 16 bits, are most of the text, and unpacking is work that a small model on a processor does not win back.</source>
        <translation>In einem kurzen Chat sind die letzten 128 Token, die in 16 Bit bleiben, der meiste Text, und das Entpacken ist Arbeit, die ein kleines Modell auf einem Prozessor nicht wieder einspielt.</translation>
    </message>
    <message>
        <source>In a text of 100,000 tokens QUEST finds the passkey 96 times in 100 with a budget of 1,024 tokens, about 1 % of the text.</source>
        <translation>In einem Text von 100.000 Token findet QUEST den Schlüssel mit einem Budget von 1.024 Token, etwa 1 % des Textes, 96-mal von 100.</translation>
    </message>
    <message>
        <source>Instant resume: saves the keys and values of chats, with their tokens, in files that only your user can read, so that a chat continues after a restart without a new prefill. The files take no more room than is set here, and those of a deleted chat are deleted with it.</source>
        <translation>Sofort weiter: Speichert die Schlüssel und Werte von Chats mit ihren Token in Dateien, die nur das eigene Benutzerkonto lesen kann, sodass ein Chat nach einem Neustart ohne erneutes Lesen des Prompts weitergeht. Die Dateien belegen höchstens den hier eingestellten Platz; die eines gelöschten Chats werden mit ihm gelöscht.</translation>
    </message>
    <message>
        <source>Interactive ITL, ms</source>
        <translation>ITL interaktiv, ms</translation>
    </message>
    <message>
        <source>Interactive TTFT, s</source>
        <translation>TTFT interaktiv, s</translation>
    </message>
    <message>
        <source>It does not help the prompt, which is read once either way, and it takes memory that grows with the text.</source>
        <translation>Dem Prompt hilft er nicht, denn der wird ohnehin einmal gelesen, und er braucht Speicher, der mit dem Text wächst.</translation>
    </message>
    <message>
        <source>J</source>
        <translation>J</translation>
    </message>
    <message>
        <source>KIVI (2-bit)</source>
        <translation>KIVI (2 Bit)</translation>
    </message>
    <message>
        <source>KIVI packs heads of a width that 4 divides, and no latents that heads share (MLA).</source>
        <translation>KIVI packt Köpfe mit durch 4 teilbarer Breite und keine Latents, die Köpfe teilen (MLA).</translation>
    </message>
    <message>
        <source>KIVI, 2 bits</source>
        <translation>KIVI, 2 Bit</translation>
    </message>
    <message>
        <source>KIVI, 4 bits</source>
        <translation>KIVI, 4 Bit</translation>
    </message>
    <message>
        <source>KIVI: key bits</source>
        <translation>KIVI: Schlüsselbits</translation>
    </message>
    <message>
        <source>KIVI: value bits</source>
        <translation>KIVI: Wertbits</translation>
    </message>
    <message>
        <source>KL against 16 bits</source>
        <translation>KL gegen 16 Bit</translation>
    </message>
    <message>
        <source>KV allocation</source>
        <translation>KV-Zuteilung</translation>
    </message>
    <message>
        <source>KV cache</source>
        <translation>KV-Cache</translation>
    </message>
    <message>
        <source>KV cache in use</source>
        <translation>belegter KV-Cache</translation>
    </message>
    <message>
        <source>KV cache on disk (GB)</source>
        <translation>KV-Cache auf der Platte (GB)</translation>
    </message>
    <message>
        <source>KV cache per token</source>
        <translation>KV-Cache je Token</translation>
    </message>
    <message>
        <source>KV cache precision</source>
        <translation>KV-Genauigkeit</translation>
    </message>
    <message>
        <source>KV offload to RAM (GB)</source>
        <translation>KV-Cache im RAM (GB)</translation>
    </message>
    <message>
        <source>KV pages</source>
        <translation>KV-Seiten</translation>
    </message>
    <message>
        <source>KV pages at most</source>
        <translation>KV-Seiten, höchstens</translation>
    </message>
    <message>
        <source>Keeps quantised weights of 2 to 8 bits packed and unpacks them inside the multiplication, so that far fewer bytes are read for each token. 16-bit holds the same weights unpacked: the same numbers, more memory.</source>
        <translation>Lässt quantisierte Gewichte von 2 bis 8 Bit gepackt und entpackt sie erst in der Multiplikation, sodass je Token viel weniger Bytes gelesen werden. „16 Bit“ hält dieselben Gewichte entpackt: gleiche Zahlen, mehr Speicher.</translation>
    </message>
    <message>
        <source>Keeps the keys and values of every token already read, so that each new token costs one row of work. Without it the whole text is computed again for every token.</source>
        <translation>Bewahrt die Schlüssel und Werte jedes schon gelesenen Tokens auf, sodass ein neues Token nur eine Zeile Arbeit kostet. Ohne ihn wird für jedes Token der ganze Text neu berechnet.</translation>
    </message>
    <message>
        <source>Keeps the pages of finished answers in a radix tree by their text, so that the beginning that a prompt shares with an earlier one is not computed again. The next turn of a chat, an edited last question and a shared system prompt then cost only what is new.</source>
        <translation>Bewahrt die Seiten fertiger Antworten nach ihrem Text in einem Radixbaum auf, sodass der Anfang, den ein Prompt mit einem früheren teilt, nicht neu berechnet wird. Die nächste Runde eines Chats, eine geänderte letzte Frage und ein gemeinsamer Systemprompt kosten dann nur, was neu ist.</translation>
    </message>
    <message>
        <source>Kernels start early in captured steps alone, and no step is captured.</source>
        <translation>Kernel starten nur in aufgezeichneten Schritten früh, und kein Schritt wird aufgezeichnet.</translation>
    </message>
    <message>
        <source>Keys have a few channels that are much larger than the others: give each channel its own scale, and a few bits are enough.</source>
        <translation>Schlüssel haben wenige Kanäle, die viel größer als die anderen sind: Mit einer eigenen Skala je Kanal genügen wenige Bits.</translation>
    </message>
    <message>
        <source>Kvasir</source>
        <translation>Kvasir</translation>
    </message>
    <message>
        <source>Kvasir&apos;s own kernel does not support this device: kvasir doctor says why.</source>
        <translation>Kvasirs eigener Kernel unterstützt dieses Gerät nicht: kvasir doctor nennt den Grund.</translation>
    </message>
    <message>
        <source>L2 prefetch (MB)</source>
        <translation>L2-Prefetch (MB)</translation>
    </message>
    <message>
        <source>LLaMA-13B, English to German (WMT16) with 1 or 5 examples before each sentence, vLLM against Orca (Oracle), so paging is part of it.</source>
        <translation>LLaMA-13B, Englisch nach Deutsch (WMT16) mit 1 oder 5 Beispielen vor jedem Satz, vLLM gegen Orca (Oracle); die Seiten gehören also dazu.</translation>
    </message>
    <message>
        <source>LLaMA2-Chat 70B</source>
        <translation>LLaMA2-Chat 70B</translation>
    </message>
    <message>
        <source>Large and dense: for 48 GB and more, with a draft model.</source>
        <translation>Groß und dicht: für 48 GB und mehr, mit einem Entwurfsmodell.</translation>
    </message>
    <message>
        <source>Largest batch</source>
        <translation>Größter Stapel</translation>
    </message>
    <message>
        <source>Launches the next step on the GPU before the tokens of the last one have been read, so that the GPU does not wait for the processor between two steps. Prompts, drafts and settings that the GPU does not sample by are scheduled step by step.</source>
        <translation>Startet den nächsten Schritt auf der GPU, bevor die Token des letzten gelesen sind, sodass die GPU zwischen zwei Schritten nicht auf den Prozessor wartet. Prompts, Entwürfe und Einstellungen, nach denen die GPU nicht ziehen kann, werden Schritt für Schritt geplant.</translation>
    </message>
    <message>
        <source>Layers in 4 bits take about a quarter of the memory, for a little quality: larger models fit, and there is less to read for each token.</source>
        <translation>Schichten in 4 Bit brauchen etwa ein Viertel des Speichers und kosten wenig Qualität: Größere Modelle haben Platz, und je Token ist weniger zu lesen.</translation>
    </message>
    <message>
        <source>Lets each kernel of a captured step start before the one before it has ended: it asks for the weights that it will need, and waits only before it reads what others write. Without it the GPU&apos;s memory idles between any two kernels; no GPU has measured yet what that costs.</source>
        <translation>Lässt jeden Kernel eines aufgezeichneten Schrittes starten, bevor der vorige zu Ende ist: Er fordert die Gewichte an, die er brauchen wird, und wartet erst, bevor er liest, was andere schreiben. Ohne dies ruht der Speicher der GPU zwischen je zwei Kerneln; was das kostet, hat noch keine GPU gemessen.</translation>
    </message>
    <message>
        <source>Llama-2</source>
        <translation>Llama-2</translation>
    </message>
    <message>
        <source>Llama-2 of 7B, 13B and 70B parameters, 4 bits a weight in groups of 128, perplexity on WikiText-2.</source>
        <translation>Llama-2 mit 7B, 13B und 70B Parametern, 4 Bit je Gewicht in Gruppen zu 128, Perplexität auf WikiText-2.</translation>
    </message>
    <message>
        <source>Llama-2-13B on one A6000, Hugging Face Transformers, against a sliding window that is recomputed.</source>
        <translation>Llama-2-13B auf einer A6000, Hugging Face Transformers, gegen ein gleitendes Fenster, das neu berechnet wird.</translation>
    </message>
    <message>
        <source>Llama-2-13B, relative errors averaged over all layers and heads.</source>
        <translation>Llama-2-13B, relative Fehler, gemittelt über alle Schichten und Köpfe.</translation>
    </message>
    <message>
        <source>Llama-2-13B, the first book of the PG19 test set (65k tokens).</source>
        <translation>Llama-2-13B, das erste Buch der PG19-Testdaten (65k Token).</translation>
    </message>
    <message>
        <source>Llama-2-7B answers 63.88 % of CoQA in 16 bits, 39.88 % with 2 bits along tokens for both, 59.08 % with keys along channels, and 63.05 % when the last tokens stay in 16 bits as well (KIVI).</source>
        <translation>Llama-2-7B beantwortet 63,88 % von CoQA in 16 Bit, 39,88 % mit 2 Bit je Token für beide, 59,08 % mit Schlüsseln je Kanal und 63,05 %, wenn zudem die letzten Token in 16 Bit bleiben (KIVI).</translation>
    </message>
    <message>
        <source>Llama-2-7B in 4 bits by AWQ has a perplexity of 5.60, against 5.47 in 16 bits, 5.69 by GPTQ and 5.73 when rounded to nearest.</source>
        <translation>Llama-2-7B in 4 Bit nach AWQ hat eine Perplexität von 5,60, gegen 5,47 in 16 Bit, 5,69 nach GPTQ und 5,73 beim Runden auf den nächsten Wert.</translation>
    </message>
    <message>
        <source>Llama-2-7B in 4 bits takes 5.28 ms a token instead of 15.50 ms in 16 bits: 2.94 times as fast.</source>
        <translation>Llama-2-7B in 4 Bit braucht 5,28 ms je Token statt 15,50 ms in 16 Bit: 2,94-mal so schnell.</translation>
    </message>
    <message>
        <source>Llama-2-7B on one A100 (80 GB), batch raised until memory is full, lengths of ShareGPT conversations (161 tokens of prompt, 338 of answer on average), residual of 32 or 128 tokens.</source>
        <translation>Llama-2-7B auf einer A100 (80 GB), Stapel bis zum vollen Speicher vergrößert, Längen von ShareGPT-Gesprächen (im Mittel 161 Token Prompt, 338 Antwort), Rest von 32 oder 128 Token.</translation>
    </message>
    <message>
        <source>Llama-2-7B with a window of 4,096 tokens has a perplexity of 3,359.95; keeping the first 4 tokens in sight brings it to 9.59.</source>
        <translation>Llama-2-7B mit einem Fenster von 4.096 Token hat eine Perplexität von 3.359,95; bleiben die ersten 4 Token im Blick, sinkt sie auf 9,59.</translation>
    </message>
    <message>
        <source>Llama-2-7B, 400k tokens of the PG19 test set, 4,096 tokens in sight in all.</source>
        <translation>Llama-2-7B, 400k Token der PG19-Testdaten, insgesamt 4.096 Token im Blick.</translation>
    </message>
    <message>
        <source>Llama-2-7B, CoQA (exact match), groups of 32, a residual of 128 tokens for KIVI; the other configurations quantise every token.</source>
        <translation>Llama-2-7B, CoQA (genaue Übereinstimmung), Gruppen zu 32, bei KIVI ein Rest von 128 Token; die anderen Varianten quantisieren jedes Token.</translation>
    </message>
    <message>
        <source>Llama-3.1-8B on an H100, one request</source>
        <translation>Llama-3.1-8B auf einer H100, eine Anfrage</translation>
    </message>
    <message>
        <source>Llama-3.1-8B-Instruct on one H100, SGLang 0.4.4, MT-bench, chains of 3 draft tokens, no trees.</source>
        <translation>Llama-3.1-8B-Instruct auf einer H100, SGLang 0.4.4, MT-bench, Ketten aus 3 Entwurfs-Token, keine Bäume.</translation>
    </message>
    <message>
        <source>Llama-3.1-8B-Instruct on one H100, SGLang, MT-bench, batch size 1.</source>
        <translation>Llama-3.1-8B-Instruct auf einer H100, SGLang, MT-bench, Stapelgröße 1.</translation>
    </message>
    <message>
        <source>Llama-7B on one A10G (24 GB), eleven workloads: MMLU with 5 examples, agents, trees of thought, multi-turn chat and others, against Guidance, vLLM 0.2.5 and LMQL; parallel calls and faster JSON are part of it.</source>
        <translation>Llama-7B auf einer A10G (24 GB), elf Arbeitslasten: MMLU mit 5 Beispielen, Agenten, Gedankenbäume, Chats in mehreren Runden und andere, gegen Guidance, vLLM 0.2.5 und LMQL; parallele Aufrufe und schnelleres JSON gehören dazu.</translation>
    </message>
    <message>
        <source>Llama2-7B on an RTX 4090, pages of 16 tokens, against FlashInfer.</source>
        <translation>Llama2-7B auf einer RTX 4090, Seiten zu 16 Token, gegen FlashInfer.</translation>
    </message>
    <message>
        <source>Load a model first.</source>
        <translation>Zuerst ein Modell laden.</translation>
    </message>
    <message>
        <source>Load it with a longer context, or take the bundled model.</source>
        <translation>Es mit längerem Kontext laden oder das mitgelieferte Modell nehmen.</translation>
    </message>
    <message>
        <source>Load, % of what the model does</source>
        <translation>Last, % der Leistung des Modells</translation>
    </message>
    <message>
        <source>Long texts, with a budget for its thinking.</source>
        <translation>Lange Texte, mit einem Budget für das Nachdenken.</translation>
    </message>
    <message>
        <source>LongChat-7b-v1.5-32K and Mistral-7B-Instruct-v0.2, LongBench, groups of 32, residual of 128 tokens.</source>
        <translation>LongChat-7b-v1.5-32K und Mistral-7B-Instruct-v0.2, LongBench, Gruppen zu 32, Rest von 128 Token.</translation>
    </message>
    <message>
        <source>LongChat-7b-v1.5-32k, passkey retrieval in 10k tokens, budgets of 32 to 512 tokens.</source>
        <translation>LongChat-7b-v1.5-32k, Schlüsselsuche in 10k Token, Budgets von 32 bis 512 Token.</translation>
    </message>
    <message>
        <source>MB</source>
        <translation>MB</translation>
    </message>
    <message>
        <source>MTP</source>
        <translation>MTP</translation>
    </message>
    <message>
        <source>MTP layers</source>
        <translation>MTP-Schichten</translation>
    </message>
    <message>
        <source>Many languages on small machines; trained for its 4 bits.</source>
        <translation>Viele Sprachen auf kleinen Computern; für seine 4 Bit trainiert.</translation>
    </message>
    <message>
        <source>Max batch size</source>
        <translation>Größter Stapel</translation>
    </message>
    <message>
        <source>Max batched tokens</source>
        <translation>Max. Token je Schritt</translation>
    </message>
    <message>
        <source>Mean score of 15 LongBench tasks</source>
        <translation>Mittlere Punktzahl in 15 Aufgaben von LongBench</translation>
    </message>
    <message>
        <source>Medians of all runs</source>
        <translation>Mediane aller Läufe</translation>
    </message>
    <message>
        <source>Medusa</source>
        <translation>Medusa</translation>
    </message>
    <message>
        <source>Medusa and EAGLE</source>
        <translation>Medusa und EAGLE</translation>
    </message>
    <message>
        <source>Medusa heads</source>
        <translation>Medusa-Köpfe</translation>
    </message>
    <message>
        <source>Medusa heads alone make Vicuna 7B 2.18 times and 13B 2.33 times as fast; with the model trained along (Medusa-2) both become 2.83 times as fast.</source>
        <translation>Medusa-Köpfe allein machen Vicuna 7B 2,18-mal und 13B 2,33-mal so schnell; wird das Modell mittrainiert (Medusa-2), werden beide 2,83-mal so schnell.</translation>
    </message>
    <message>
        <source>Medusa-1</source>
        <translation>Medusa-1</translation>
    </message>
    <message>
        <source>Medusa-2</source>
        <translation>Medusa-2</translation>
    </message>
    <message>
        <source>Memory</source>
        <translation>Speicher</translation>
    </message>
    <message>
        <source>Memory that is taken page by page holds text instead of waiting for it: far more chats fit at once.</source>
        <translation>Seitenweise belegter Speicher enthält Text, statt auf ihn zu warten: Weit mehr Chats haben zugleich Platz.</translation>
    </message>
    <message>
        <source>Milliseconds that may pass between two tokens of chats of the window and of the terminal (inter-token latency): while one is written, a step reads of other prompts only what keeps to this. Where the answers alone take longer, “Why this speed?” says with how many it could be kept.</source>
        <translation>Millisekunden, die zwischen zwei Token von Chats des Fensters und des Terminals vergehen dürfen (Latenz zwischen Token): Während einer geschrieben wird, liest ein Schritt von anderen Prompts nur so viel, dass dies eingehalten wird. Brauchen schon die Antworten länger, sagt „Warum so schnell?“, mit wie vielen es sich einhalten ließe.</translation>
    </message>
    <message>
        <source>Milliseconds that may pass between two tokens of requests by HTTP (inter-token latency): while one is written, a step reads of other prompts only what keeps to this. Where the answers alone take longer, “Why this speed?” says with how many it could be kept.</source>
        <translation>Millisekunden, die zwischen zwei Token von Anfragen über HTTP vergehen dürfen (Latenz zwischen Token): Während eine geschrieben wird, liest ein Schritt von anderen Prompts nur so viel, dass dies eingehalten wird. Brauchen schon die Antworten länger, sagt „Warum so schnell?“, mit wie vielen es sich einhalten ließe.</translation>
    </message>
    <message>
        <source>Milliseconds that may pass between two tokens of requests that nobody waits for (inter-token latency): while one is written, a step reads of other prompts only what keeps to this. Where the answers alone take longer, “Why this speed?” says with how many it could be kept.</source>
        <translation>Millisekunden, die zwischen zwei Token von Anfragen vergehen dürfen, auf die niemand wartet (Latenz zwischen Token): Während eine geschrieben wird, liest ein Schritt von anderen Prompts nur so viel, dass dies eingehalten wird. Brauchen schon die Antworten länger, sagt „Warum so schnell?“, mit wie vielen es sich einhalten ließe.</translation>
    </message>
    <message>
        <source>Models with multi-head latent attention keep all pages: their cache is small already.</source>
        <translation>Modelle mit Multi-Head Latent Attention behalten alle Seiten: Ihr Cache ist schon klein.</translation>
    </message>
    <message>
        <source>More knowledge than the 8B, for 12 GB.</source>
        <translation>Mehr Wissen als das 8B-Modell, für 12 GB.</translation>
    </message>
    <message>
        <source>Moves keys and values that the cache has no room for to the machine&apos;s memory: texts that may come again, and answers that were paused. Copying them back is faster than computing the text again.</source>
        <translation>Verschiebt Schlüssel und Werte, für die der Cache keinen Platz hat, in den Arbeitsspeicher: Texte, die wiederkommen können, und zurückgestellte Antworten. Sie zurückzukopieren geht schneller, als den Text neu zu berechnen.</translation>
    </message>
    <message>
        <source>Much knowledge for 32 GB; only 3B parameters run per token; sees pictures.</source>
        <translation>Viel Wissen für 32 GB; nur 3B Parameter rechnen je Token; sieht Bilder.</translation>
    </message>
    <message>
        <source>Much knowledge; only 4B parameters run per token; trained for its 4 bits.</source>
        <translation>Viel Wissen; nur 4B Parameter rechnen je Token; für seine 4 Bit trainiert.</translation>
    </message>
    <message>
        <source>Multiplies queries and keys by a Hadamard matrix before keys are packed. Their products stay what they were, and what was in a few large channels of a key is spread over all of them, so that none stretches the scale that the others share.</source>
        <translation>Multipliziert Anfragen (Queries) und Schlüssel mit einer Hadamard-Matrix, bevor die Schlüssel gepackt werden. Ihre Produkte bleiben gleich, und was in wenigen großen Kanälen eines Schlüssels lag, verteilt sich auf alle, sodass keiner die gemeinsame Skala dehnt.</translation>
    </message>
    <message>
        <source>N-gram lookup (other chats)</source>
        <translation>N-Gramm-Suche (alle Chats)</translation>
    </message>
    <message>
        <source>N-gram lookup also searches your other chats, those answered with this switch on since the engine started; deleting any chat empties that memory. Only drafts come from there: the text stays the same.</source>
        <translation>Die N-Gramm-Suche durchsucht auch die anderen Chats, die seit dem Start der Engine mit diesem Schalter beantwortet wurden; das Löschen eines Chats leert dieses Gedächtnis. Nur Entwürfe kommen von dort: Der Text bleibt derselbe.</translation>
    </message>
    <message>
        <source>Near the end of an answer, how much sooner does each token come with the KV cache?</source>
        <translation>Wie viel früher kommt gegen Ende einer Antwort jedes Token mit dem KV-Cache?</translation>
    </message>
    <message>
        <source>Needs a draft model with the same tokenizer: choose one in the model menu.</source>
        <translation>Braucht ein Entwurfsmodell mit demselben Tokenizer: im Modellmenü eines wählen.</translation>
    </message>
    <message>
        <source>No GPU that a pack is made for was found.</source>
        <translation>Keine GPU gefunden, für die es ein Paket gibt.</translation>
    </message>
    <message>
        <source>No assistant of Gemma 4 was loaded with this model: choose its folder in the model menu.</source>
        <translation>Mit diesem Modell wurde kein Assistent von Gemma 4 geladen: im Modellmenü seinen Ordner wählen.</translation>
    </message>
    <message>
        <source>No layer of this model has a sliding window shorter than its context.</source>
        <translation>Keine Schicht dieses Modells hat ein gleitendes Fenster, das kürzer als sein Kontext ist.</translation>
    </message>
    <message>
        <source>Nobody knows how long a chat will get, so servers kept memory for the longest possible one, most of which stayed empty. PagedAttention hands memory out in pages of sixteen tokens, as the text reaches them.</source>
        <translation>Niemand weiß, wie lang ein Chat wird, darum hielten Server Speicher für den längsten möglichen frei, und das meiste blieb leer. PagedAttention vergibt Speicher in Seiten zu sechzehn Token, sobald der Text sie erreicht.</translation>
    </message>
    <message>
        <source>Numerics</source>
        <translation>Numerik</translation>
    </message>
    <message>
        <source>OPT from 125M to 175B parameters, 4 bits a weight and one grid for each row, perplexity on WikiText2.</source>
        <translation>OPT mit 125M bis 175B Parametern, 4 Bit je Gewicht und ein Raster je Zeile, Perplexität auf WikiText2.</translation>
    </message>
    <message>
        <source>OPT models on A100 GPUs, requests of the lengths of ShareGPT and Alpaca conversations arriving at random (section 6.2). Orca reserves the longest length, the next power of two, or the true length (Oracle).</source>
        <translation>OPT-Modelle auf A100, zufällig eintreffende Anfragen in den Längen von ShareGPT- und Alpaca-Gesprächen (Abschnitt 6.2). Orca reserviert die größte Länge, die nächste Zweierpotenz oder die wahre Länge (Oracle).</translation>
    </message>
    <message>
        <source>OPT-13B on one A100 (40 GB, 12 GB of it for the KV cache), lengths of ShareGPT conversations, 2 requests a second.</source>
        <translation>OPT-13B auf einer A100 (40 GB, davon 12 GB für den KV-Cache), Längen von ShareGPT-Gesprächen, 2 Anfragen je Sekunde.</translation>
    </message>
    <message>
        <source>OPT-13B, 66B and 175B on 1, 4 and 16 A100 (40 GB), lengths of ShareGPT and Alpaca, requests arriving at random, against vLLM 0.1.7, which serves them in order of arrival.</source>
        <translation>OPT-13B, 66B und 175B auf 1, 4 und 16 A100 (40 GB), Längen von ShareGPT und Alpaca, zufällig eintreffende Anfragen, gegen vLLM 0.1.7, das sie der Reihe nach bedient.</translation>
    </message>
    <message>
        <source>OPT-13B, 66B and 175B on 1, 4 and 8 A100 GPUs, lengths of ShareGPT conversations, requests arriving at random for an hour (15 minutes for 175B), at similar latencies.</source>
        <translation>OPT-13B, 66B und 175B auf 1, 4 und 8 A100, Längen von ShareGPT-Gesprächen, eine Stunde lang zufällig eintreffende Anfragen (15 Minuten bei 175B), bei ähnlichen Latenzen.</translation>
    </message>
    <message>
        <source>OPT-175B in 3 bits takes 130 ms a token on two A6000 instead of 589 ms in 16 bits on eight.</source>
        <translation>OPT-175B in 3 Bit braucht auf zwei A6000 130 ms je Token statt 589 ms in 16 Bit auf acht.</translation>
    </message>
    <message>
        <source>OPT-175B in 4 bits by GPTQ has a perplexity of 8.37, against 8.34 in 16 bits and 10.54 when every weight is rounded to the nearest 4-bit value.</source>
        <translation>OPT-175B in 4 Bit nach GPTQ hat eine Perplexität von 8,37, gegen 8,34 in 16 Bit und 10,54, wenn jedes Gewicht auf den nächsten 4-Bit-Wert gerundet wird.</translation>
    </message>
    <message>
        <source>OPT-175B, batch size 1, 128 tokens generated: 16 bits on 8 A6000 (48 GB) or 5 A100 (80 GB), 3 bits on 2 or 1 of them.</source>
        <translation>OPT-175B, Stapelgröße 1, 128 erzeugte Token: 16 Bit auf 8 A6000 (48 GB) oder 5 A100 (80 GB), 3 Bit auf 2 oder 1 davon.</translation>
    </message>
    <message>
        <source>Of every token that it has read a model keeps keys and values, and in a long chat they take more memory than the model itself. Kept in fewer bits they take less, and KIVI gives each channel of the keys a scale of its own, so that the few that are many times larger than the rest do not drown them.</source>
        <translation>Von jedem gelesenen Token bewahrt ein Modell Schlüssel und Werte auf, und in einem langen Chat brauchen sie mehr Speicher als das Modell selbst. In weniger Bits brauchen sie weniger, und KIVI gibt jedem Kanal der Schlüssel eine eigene Skala, sodass die wenigen, die vielmal größer sind als der Rest, diesen nicht übertönen.</translation>
    </message>
    <message>
        <source>Of that, the order alone is worth 2 to 4 times: as much slower is the same engine where it serves requests in order of arrival.</source>
        <translation>Davon ist die Reihenfolge allein das 2- bis 4-Fache wert: So viel langsamer ist dieselbe Engine, wenn sie Anfragen der Reihe nach bedient.</translation>
    </message>
    <message>
        <source>On 15 tasks with long texts LongChat-7B scores 38.30 with 2 bits against 38.72 in 16 bits; Mistral-7B, which has a quarter of the key and value heads, 42.43 against 43.54.</source>
        <translation>In 15 Aufgaben mit langen Texten erreicht LongChat-7B mit 2 Bit 38,30 gegen 38,72 in 16 Bit; Mistral-7B, das ein Viertel der Schlüssel- und Wert-Köpfe hat, 42,43 gegen 43,54.</translation>
    </message>
    <message>
        <source>On a text that nobody can foresee drafts are rejected, and making and checking them costs time.</source>
        <translation>Bei einem Text, den niemand vorhersehen kann, werden Entwürfe abgelehnt, und sie herzustellen und zu prüfen kostet Zeit.</translation>
    </message>
    <message>
        <source>On the same model and questions Medusa is 2.07 times as fast as plain decoding, EAGLE 3.07 times, EAGLE-2 4.26 and EAGLE-3 5.58; a draft model of 68M parameters 1.93.</source>
        <translation>Mit demselben Modell und denselben Fragen ist Medusa 2,07-mal so schnell wie einfaches Decodieren, EAGLE 3,07-mal, EAGLE-2 4,26-mal und EAGLE-3 5,58-mal; ein Entwurfsmodell mit 68M Parametern 1,93-mal.</translation>
    </message>
    <message>
        <source>One A100 for Mistral-7B, two for Yi-34B, eight for Falcon-180B, against vLLM of that time, which read prompts whole.</source>
        <translation>Eine A100 für Mistral-7B, zwei für Yi-34B, acht für Falcon-180B, gegen das damalige vLLM, das Prompts ganz las.</translation>
    </message>
    <message>
        <source>One answer alone cannot show this. The Lab&apos;s “Batch size” shows what it is for. kvasir bench --cache in a terminal measures it on many chats.</source>
        <translation>Eine einzelne Antwort zeigt das nicht. „Stapelgröße“ im Labor zeigt, wofür es gut ist. kvasir bench --cache misst es im Terminal an vielen Chats.</translation>
    </message>
    <message>
        <source>One answer alone cannot show this. The Lab&apos;s “Chunked prefill” shows what it is for. kvasir bench in a terminal measures it on an answer that waits while another prompt is read.</source>
        <translation>Eine einzelne Antwort zeigt das nicht. „Chunked Prefill“ im Labor zeigt, wofür es gut ist. kvasir bench misst es im Terminal an einer Antwort, die wartet, während ein anderer Prompt gelesen wird.</translation>
    </message>
    <message>
        <source>One answer alone cannot show this. The Lab&apos;s “Prefix caching” shows what it is for. kvasir bench --cache in a terminal measures it on a chat that goes on after a restart.</source>
        <translation>Eine einzelne Antwort zeigt das nicht. „Präfix-Caching“ im Labor zeigt, wofür es gut ist. kvasir bench --cache misst es im Terminal an einem Chat, der nach einem Neustart weitergeht.</translation>
    </message>
    <message>
        <source>One answer alone cannot show this. The Lab&apos;s “Prefix caching” shows what it is for. kvasir bench --cache in a terminal measures it on many chats.</source>
        <translation>Eine einzelne Antwort zeigt das nicht. „Präfix-Caching“ im Labor zeigt, wofür es gut ist. kvasir bench --cache misst es im Terminal an vielen Chats.</translation>
    </message>
    <message>
        <source>One answer alone cannot show this. The Lab&apos;s “Skip-join MLFQ” shows what it is for. kvasir bench --scheduling in a terminal measures it on every policy on one trace.</source>
        <translation>Eine einzelne Antwort zeigt das nicht. „Skip-Join MLFQ“ im Labor zeigt, wofür es gut ist. kvasir bench --scheduling misst es im Terminal mit jeder Strategie an einer Aufzeichnung.</translation>
    </message>
    <message>
        <source>One answer alone cannot show this. kvasir bench --cache in a terminal measures it on many chats.</source>
        <translation>Eine einzelne Antwort zeigt das nicht. kvasir bench --cache misst es im Terminal an vielen Chats.</translation>
    </message>
    <message>
        <source>One answer alone cannot show this. kvasir bench in a terminal measures it on answers that are held to a schema.</source>
        <translation>Eine einzelne Antwort zeigt das nicht. kvasir bench misst es im Terminal an Antworten, die einem Schema folgen.</translation>
    </message>
    <message>
        <source>One answer on an Ada 6000 GPU, 16-bit weights, against FlashInfer over the whole KV cache; this part of the paper names no model.</source>
        <translation>Eine Antwort auf einer Ada 6000, 16-Bit-Gewichte, gegen FlashInfer über den ganzen KV-Cache; dieser Teil der Arbeit nennt kein Modell.</translation>
    </message>
    <message>
        <source>One chat alone is not faster, and chats that fill their whole context take as much memory either way.</source>
        <translation>Ein einzelner Chat wird nicht schneller, und Chats, die ihren ganzen Kontext füllen, brauchen so oder so gleich viel Speicher.</translation>
    </message>
    <message>
        <source>One pass through the model can write a word for several people at once, but people come at different times and want answers of different lengths. Continuous batching lets each join at the next word and leave with its last one, instead of waiting until a whole group begins and ends together.</source>
        <translation>Ein Durchgang durch das Modell kann für mehrere zugleich ein Wort schreiben, aber Menschen kommen zu verschiedenen Zeiten und wollen verschieden lange Antworten. Mit laufenden Stapeln steigt jeder beim nächsten Wort ein und mit seinem letzten aus, statt zu warten, bis eine ganze Gruppe gemeinsam beginnt und endet.</translation>
    </message>
    <message>
        <source>One request runs at 373.25 tokens a second with EAGLE-3, 244.10 with EAGLE-2 and 158.34 without.</source>
        <translation>Eine Anfrage läuft mit EAGLE-3 mit 373,25 Token je Sekunde, mit EAGLE-2 mit 244,10 und ohne mit 158,34.</translation>
    </message>
    <message>
        <source>Only 1B of its 8B parameters run per token: fast without a GPU.</source>
        <translation>Nur 1B seiner 8B Parameter rechnen je Token: schnell ohne GPU.</translation>
    </message>
    <message>
        <source>Only 4-bit weights on an NVIDIA GPU from compute capability 8.0 on have such products: kvasir doctor says what runs here.</source>
        <translation>Nur 4-Bit-Gewichte auf einer NVIDIA-GPU ab Compute Capability 8.0 haben solche Produkte: kvasir doctor sagt, was hier läuft.</translation>
    </message>
    <message>
        <source>Only Kvasir&apos;s own kernel for processors quantises activations, and not where float32 was asked for.</source>
        <translation>Nur Kvasirs eigener Kernel für Prozessoren quantisiert Aktivierungen, und nicht, wo float32 verlangt ist.</translation>
    </message>
    <message>
        <source>Only NVIDIA GPUs of compute capability 9.0 or newer start a kernel before the one before it has ended.</source>
        <translation>Nur NVIDIA-GPUs ab Compute Capability 9.0 starten einen Kernel, bevor der vorige zu Ende ist.</translation>
    </message>
    <message>
        <source>Only a GPU that samples by Kvasir&apos;s own kernels can be given steps ahead: kvasir doctor says what runs here.</source>
        <translation>Nur eine GPU, die mit Kvasirs eigenen Kerneln zieht, nimmt Schritte im Voraus an: kvasir doctor sagt, was hier läuft.</translation>
    </message>
    <message>
        <source>Captured steps</source>
        <translation>Schrittaufzeichnung</translation>
    </message>
    <message>
        <source>Async scheduling</source>
        <translation>Asynchrone Planung</translation>
    </message>
    <message>
        <source>Captures all calls of a step once, and from then on repeats them: on a GPU as a CUDA graph, on a processor as a tape of calls of Kvasir&apos;s native code. Without it Python calls every kernel of every layer for each token, and the device waits for it.</source>
        <translation>Zeichnet alle Aufrufe eines Schritts einmal auf und wiederholt sie von da an: auf einer GPU als CUDA-Graph, auf einem Prozessor als Folge von Aufrufen von Kvasirs nativem Code. Ohne das ruft Python für jedes Token jeden Kernel jeder Schicht auf, und das Gerät wartet darauf.</translation>
    </message>
    <message>
        <source>Follows instructions in many European languages, about pictures too.</source>
        <translation>Befolgt Anweisungen in vielen europäischen Sprachen, auch zu Bildern.</translation>
    </message>
    <message>
        <source>Free unused pages (sliding windows)</source>
        <translation>Seiten freigeben (gleitendes Fenster)</translation>
    </message>
    <message>
        <source>How much of the next kernel&apos;s weights a kernel has prefetched into the GPU&apos;s level-2 cache: attention while it waits, a product at its end. More than half of that cache would push out what was prefetched before.</source>
        <translation>Wie viel von den Gewichten des nächsten Kernels ein Kernel vorab in den Level-2-Cache der GPU holen lässt: Attention, während sie wartet, ein Produkt an seinem Ende. Mehr als die Hälfte dieses Caches würde verdrängen, was zuvor geholt wurde.</translation>
    </message>
    <message>
        <source>Only steps with Kvasir&apos;s own kernels for attention can be captured: kvasir doctor says what runs here.</source>
        <translation>Nur Schritte mit Kvasirs eigenen Kerneln für Attention können aufgezeichnet werden: kvasir doctor sagt, was hier läuft.</translation>
    </message>
    <message>
        <source>Only what prefix caching keeps is saved.</source>
        <translation>Gespeichert wird nur, was das Präfix-Caching behält.</translation>
    </message>
    <message>
        <source>Output head</source>
        <translation>Ausgabekopf</translation>
    </message>
    <message>
        <source>Packed and recent tokens are read apart, and not once for several answers.</source>
        <translation>Gepackte und jüngste Token werden getrennt gelesen und nicht einmal für mehrere Antworten.</translation>
    </message>
    <message>
        <source>Paged memory</source>
        <translation>Speicher in Seiten</translation>
    </message>
    <message>
        <source>PagedAttention&apos;s kernel against FasterTransformer&apos;s, contexts of 64 to 256 tokens, batch sizes 8 and 32.</source>
        <translation>Der Kernel von PagedAttention gegen den von FasterTransformer, Kontexte von 64 bis 256 Token, Stapelgrößen 8 und 32.</translation>
    </message>
    <message>
        <source>Pages are chosen by a plan of each step, which cannot be captured.</source>
        <translation>Seiten wählt ein Plan jedes Schrittes aus; das lässt sich nicht aufzeichnen.</translation>
    </message>
    <message>
        <source>Perplexity over the text</source>
        <translation>Perplexität im Lauf des Textes</translation>
    </message>
    <message>
        <source>Plain answers in many European languages, about pictures too.</source>
        <translation>Klare Antworten in vielen europäischen Sprachen, auch zu Bildern.</translation>
    </message>
    <message>
        <source>Prefix caching</source>
        <translation>Präfix-Caching</translation>
    </message>
    <message>
        <source>Prefix caching (RadixAttention)</source>
        <translation>Präfix-Caching (RadixAttention)</translation>
    </message>
    <message>
        <source>Products of one to eight rows ask for several pieces of their 4-bit weights at once, so that fast memory never waits for a request. An experiment, which no GPU has measured yet: each kernel is compared with the one that it replaces at the load, and what it cannot serve keeps that one.</source>
        <translation>Produkte von ein bis acht Zeilen fordern mehrere Stücke ihrer 4-Bit-Gewichte zugleich an, sodass schneller Speicher nie auf eine Anforderung wartet. Ein Versuch, den noch keine GPU gemessen hat: Jeder Kernel wird beim Laden mit dem verglichen, den er ersetzt, und was er nicht bedienen kann, behält diesen.</translation>
    </message>
    <message>
        <source>PyTorch</source>
        <translation>PyTorch</translation>
    </message>
    <message>
        <source>PyTorch has no operator for 8-bit rows, so the head stays as in the file.</source>
        <translation>PyTorch hat keinen Operator für 8-Bit-Zeilen, darum bleibt der Kopf wie in der Datei.</translation>
    </message>
    <message>
        <source>QUEST budget (tokens)</source>
        <translation>QUEST-Budget (Token)</translation>
    </message>
    <message>
        <source>QUEST ranks pages by 16-bit keys: set the KV cache precision to 16-bit first.</source>
        <translation>QUEST ordnet Seiten nach 16-Bit-Schlüsseln: zuerst die KV-Genauigkeit auf 16 Bit stellen.</translation>
    </message>
    <message>
        <source>QUEST ranks pages by keys, and this model caches latents, which its heads share.</source>
        <translation>QUEST ordnet Seiten nach Schlüsseln, und dieses Modell speichert Latents, die sich seine Köpfe teilen.</translation>
    </message>
    <message>
        <source>Quality</source>
        <translation>Qualität</translation>
    </message>
    <message>
        <source>Quantises what meets packed weights in products on a processor, with a scale for every 32 numbers. Products are integers then, and the fewer bits they have, the more of them an instruction adds up.</source>
        <translation>Quantisiert, was auf einem Prozessor mit gepackten Gewichten multipliziert wird, mit einer Skala je 32 Zahlen. Die Produkte sind dann ganze Zahlen, und je weniger Bits sie haben, desto mehr addiert ein Befehl.</translation>
    </message>
    <message>
        <source>RTX 4090, one answer, 4 context tokens; 16 bits by Hugging Face, 4 bits by TinyChat, which also fuses attention and allocates the KV cache ahead.</source>
        <translation>RTX 4090, eine Antwort, 4 Kontext-Token; 16 Bit mit Hugging Face, 4 Bit mit TinyChat, das auch die Attention verschmilzt und den KV-Cache im Voraus zuteilt.</translation>
    </message>
    <message>
        <source>Read bandwidth: the fastest of several sums over a buffer larger than the caches.</source>
        <translation>Lesebandbreite: die schnellste von mehreren Summen über einen Puffer, der größer als die Caches ist.</translation>
    </message>
    <message>
        <source>Reading 64 tokens of a text of 10,000, QUEST still finds the passkey 99 times in 100; methods that drop tokens for good find it at most 8 times with 512.</source>
        <translation>Von einem Text aus 10.000 Token 64 lesend, findet QUEST den Schlüssel noch 99-mal von 100; Verfahren, die Token endgültig verwerfen, finden ihn mit 512 höchstens 8-mal.</translation>
    </message>
    <message>
        <source>Reading only what matters (QUEST)</source>
        <translation>Nur Wichtiges lesen (QUEST)</translation>
    </message>
    <message>
        <source>Reading the KV cache through a page table makes the attention kernel itself take 20 to 26 % longer.</source>
        <translation>Den KV-Cache über eine Seitentabelle zu lesen verlängert den Attention-Kernel selbst um 20 bis 26 %.</translation>
    </message>
    <message>
        <source>Reads pictures, screens and scanned pages on small machines.</source>
        <translation>Liest Bilder, Bildschirme und gescannte Seiten auf kleinen Computern.</translation>
    </message>
    <message>
        <source>Reads the keys and values that several running answers share once for all of them, and merges the result with each answer&apos;s own part. It leaves itself out where it gains nothing: few shared tokens, Kvasir&apos;s own kernel on a processor, or batch-invariant arithmetic.</source>
        <translation>Liest Schlüssel und Werte, die mehrere laufende Antworten teilen, einmal für alle und verbindet das Ergebnis mit dem eigenen Teil jeder Antwort. Wo es nichts bringt, bleibt es weg: bei wenigen gemeinsamen Token, bei Kvasirs eigenem Kernel auf einem Prozessor und bei stapelunabhängigem Rechnen.</translation>
    </message>
    <message>
        <source>Reasons with an effort that you set; only 3.6B parameters run per token.</source>
        <translation>Denkt mit einstellbarem Aufwand nach; nur 3,6B Parameter rechnen je Token.</translation>
    </message>
    <message>
        <source>Resident products</source>
        <translation>Residente Produkte</translation>
    </message>
    <message>
        <source>Rows that choose pages cannot share a tree: its first path alone is checked.</source>
        <translation>Zeilen, die Seiten auswählen, können sich keinen Baum teilen: Nur sein erster Pfad wird geprüft.</translation>
    </message>
    <message>
        <source>Scheduling</source>
        <translation>Ablaufplanung</translation>
    </message>
    <message>
        <source>Scheduling policy</source>
        <translation>Planungsstrategie</translation>
    </message>
    <message>
        <source>Seconds that chats of the window and of the terminal may wait for their first token (TTFT). With the policy “service classes” the one that is late keeps its memory; the plot of requests tells how many answers were in time.</source>
        <translation>Sekunden, die Chats des Fensters und des Terminals auf ihr erstes Token warten dürfen (TTFT). Mit der Strategie „Dienstklassen“ behält der verspätete seinen Speicher; das Diagramm der Anfragen sagt, wie viele Antworten rechtzeitig kamen.</translation>
    </message>
    <message>
        <source>Seconds that requests by HTTP may wait for their first token (TTFT). With the policy “service classes” the one that is late keeps its memory; the plot of requests tells how many answers were in time.</source>
        <translation>Sekunden, die Anfragen über HTTP auf ihr erstes Token warten dürfen (TTFT). Mit der Strategie „Dienstklassen“ behält die verspätete ihren Speicher; das Diagramm der Anfragen sagt, wie viele Antworten rechtzeitig kamen.</translation>
    </message>
    <message>
        <source>Seconds that requests that nobody waits for may wait for their first token (TTFT). With the policy “service classes” the one that is late keeps its memory; the plot of requests tells how many answers were in time.</source>
        <translation>Sekunden, die Anfragen, auf die niemand wartet, auf ihr erstes Token warten dürfen (TTFT). Mit der Strategie „Dienstklassen“ behält die verspätete ihren Speicher; das Diagramm der Anfragen sagt, wie viele Antworten rechtzeitig kamen.</translation>
    </message>
    <message>
        <source>Shared keys and values are not read faster together on this device.</source>
        <translation>Gemeinsame Schlüssel und Werte werden auf diesem Gerät zusammen nicht schneller gelesen.</translation>
    </message>
    <message>
        <source>Shared-prefix attention (cascade)</source>
        <translation>Gemeinsame Präfixe (Cascade-Attention)</translation>
    </message>
    <message>
        <source>Sharing</source>
        <translation>Teilen</translation>
    </message>
    <message>
        <source>Sharing the pages of a common prompt gives 1.67 times the throughput with a prefix of 80 tokens and 3.58 times with one of 341.</source>
        <translation>Die Seiten eines gemeinsamen Prompts zu teilen gibt bei einem Präfix von 80 Token den 1,67-fachen Durchsatz, bei einem von 341 den 3,58-fachen.</translation>
    </message>
    <message>
        <source>Short answers need not wait for long ones, even if nobody knows which are which: whoever had little goes first.</source>
        <translation>Kurze Antworten müssen nicht auf lange warten, auch wenn niemand weiß, welche welche sind: Wer wenig bekam, ist zuerst dran.</translation>
    </message>
    <message>
        <source>Skip-join MLFQ</source>
        <translation>Skip-Join MLFQ</translation>
    </message>
    <message>
        <source>Sliding window + sinks</source>
        <translation>Fenster + Sinks</translation>
    </message>
    <message>
        <source>Small models lose more quality than large ones, long prompts gain little speed, and what stays in 16 bits (the token table, often the output head) weighs all the more. A model of 16 bits is packed only where the settings quantise it on load, or a column of Compare does.</source>
        <translation>Kleine Modelle verlieren mehr Qualität als große, lange Prompts werden kaum schneller, und was in 16 Bit bleibt (die Token-Tabelle, oft der Ausgabekopf), wiegt umso mehr. Ein 16-Bit-Modell wird nur gepackt, wo die Einstellungen es beim Laden quantisieren oder eine Spalte des Vergleichs es tut.</translation>
    </message>
    <message>
        <source>Speculation</source>
        <translation>Spekulation</translation>
    </message>
    <message>
        <source>Speculation needs the KV cache: switch speculation off first.</source>
        <translation>Spekulation braucht den KV-Cache: zuerst die Spekulation ausschalten.</translation>
    </message>
    <message>
        <source>Speculation pays where the text is easy to foresee and checking is cheap; what is written stays the same.</source>
        <translation>Spekulation lohnt sich, wo der Text leicht vorherzusehen und das Prüfen billig ist; geschrieben wird dasselbe.</translation>
    </message>
    <message>
        <source>Speculative decoding</source>
        <translation>Spekulatives Decodieren</translation>
    </message>
    <message>
        <source>Standard ITL, ms</source>
        <translation>ITL normal, ms</translation>
    </message>
    <message>
        <source>Standard TTFT, s</source>
        <translation>TTFT normal, s</translation>
    </message>
    <message>
        <source>Step time targets</source>
        <translation>Zeitziele der Schritte</translation>
    </message>
    <message>
        <source>Stores keys and values in fewer bits, so that the same memory holds more text and each token reads fewer bytes of it. 8-bit, FP8 and 4-bit quantise each token by itself; KIVI quantises keys per channel, where outlier channels do no harm, and leaves the last 128 tokens in 16 bits.</source>
        <translation>Speichert Schlüssel und Werte in weniger Bits, sodass derselbe Speicher mehr Text fasst und jedes Token weniger Bytes davon liest. 8 Bit, FP8 und 4 Bit quantisieren jedes Token für sich; KIVI quantisiert Schlüssel je Kanal, wo Ausreißerkanäle nicht schaden, und lässt die letzten 128 Token in 16 Bit.</translation>
    </message>
    <message>
        <source>Summaries and long texts with little memory for each token.</source>
        <translation>Zusammenfassungen und lange Texte mit wenig Speicher je Token.</translation>
    </message>
    <message>
        <source>T5-XXL (11B) drafted for by T5-small (77M), translation to German and summaries of news, greedy and sampled, 7 or 5 tokens drafted a step, batch size 1 on one TPU v4, against T5X.</source>
        <translation>T5-XXL (11B) mit Entwürfen von T5-small (77M), Übersetzung ins Deutsche und Zusammenfassungen von Nachrichten, gierig und gezogen, 7 oder 5 Token Entwurf je Schritt, Stapelgröße 1 auf einer TPU v4, gegen T5X.</translation>
    </message>
    <message>
        <source>T5-XXL (11B), translation to German, greedy, 7 tokens drafted a step, batch size 1 on one TPU v4; accepted: 0.75, 0.80 and 0.82.</source>
        <translation>T5-XXL (11B), Übersetzung ins Deutsche, gierig, 7 Token Entwurf je Schritt, Stapelgröße 1 auf einer TPU v4; angenommen: 0,75, 0,80 und 0,82.</translation>
    </message>
    <message>
        <source>TTFT</source>
        <translation>TTFT</translation>
    </message>
    <message>
        <source>Take a model whose layers all use attention, such as the bundled one.</source>
        <translation>Ein Modell nehmen, dessen Schichten alle Attention nutzen, etwa das mitgelieferte.</translation>
    </message>
    <message>
        <source>Take the bundled model.</source>
        <translation>Das mitgelieferte Modell nehmen.</translation>
    </message>
    <message>
        <source>Target between two words, ms</source>
        <translation>Ziel zwischen zwei Wörtern, ms</translation>
    </message>
    <message>
        <source>Targets of service classes</source>
        <translation>Ziele der Dienstklassen</translation>
    </message>
    <message>
        <source>Text that was read once need not be read again: prompts that begin alike share their pages.</source>
        <translation>Einmal gelesener Text muss nicht noch einmal gelesen werden: Prompts, die gleich beginnen, teilen ihre Seiten.</translation>
    </message>
    <message>
        <source>The 27B of August 2026; its file has no multi-token layers.</source>
        <translation>Das 27B-Modell vom August 2026; seine Datei hat keine Mehr-Token-Schichten.</translation>
    </message>
    <message>
        <source>The basics</source>
        <translation>Grundlagen</translation>
    </message>
    <message>
        <source>The better the draft, the more tokens a step writes; a tree holds the right one more often than a line.</source>
        <translation>Je besser der Entwurf, desto mehr Token schreibt ein Schritt; ein Baum enthält das richtige öfter als eine Kette.</translation>
    </message>
    <message>
        <source>The bundled model can show it.</source>
        <translation>Das mitgelieferte Modell kann es zeigen.</translation>
    </message>
    <message>
        <source>The first prompt of all gains nothing, and neither do texts that differ from their first token on.</source>
        <translation>Der allererste Prompt gewinnt nichts, ebenso wenig Texte, die sich vom ersten Token an unterscheiden.</translation>
    </message>
    <message>
        <source>The heads must be trained for this one model, and every branch of the tree must be checked: where arithmetic is scarce a wide tree costs more than it finds.</source>
        <translation>Die Köpfe müssen für genau dieses Modell trainiert sein, und jeder Zweig des Baums ist zu prüfen: Wo das Rechnen knapp ist, kostet ein breiter Baum mehr, als er findet.</translation>
    </message>
    <message>
        <source>The kernel multiplies with packed weights, and 16-bit ones are unpacked.</source>
        <translation>Der Kernel multipliziert mit gepackten Gewichten, und 16-Bit-Gewichte sind entpackt.</translation>
    </message>
    <message>
        <source>The large gpt-oss: for 64 GB and more.</source>
        <translation>Das große gpt-oss: für 64 GB und mehr.</translation>
    </message>
    <message>
        <source>The largest Gemma 4; trained for its 4 bits.</source>
        <translation>Das größte Gemma 4; für seine 4 Bit trainiert.</translation>
    </message>
    <message>
        <source>The memory of a window stays flat however long the text is, and models that lean on their first tokens need those few kept.</source>
        <translation>Der Speicher eines Fensters bleibt gleich, wie lang der Text auch wird, und Modelle, die sich auf ihre ersten Token stützen, brauchen diese wenigen.</translation>
    </message>
    <message>
        <source>The model has no tokenizer, so there is no text to show it with.</source>
        <translation>Das Modell hat keinen Tokenizer, darum gibt es keinen Text, an dem es sich zeigen ließe.</translation>
    </message>
    <message>
        <source>The model keeps its keys and values in a way of its own.</source>
        <translation>Das Modell bewahrt seine Schlüssel und Werte auf eigene Weise auf.</translation>
    </message>
    <message>
        <source>The most answers that one step works for. A larger batch gives more tokens per second in all, and each answer fewer.</source>
        <translation>Für so viele Antworten arbeitet ein Schritt höchstens. Ein größerer Stapel gibt insgesamt mehr Token je Sekunde und jeder Antwort weniger.</translation>
    </message>
    <message>
        <source>The most tokens that one step computes, over all answers; by default a GPU computes up to 2,048 while no answer is being written. A larger number computes prompts faster; a smaller one keeps running answers smooth.</source>
        <translation>So viele Token berechnet ein Schritt höchstens, über alle Antworten; in der Vorgabe berechnet eine GPU bis zu 2.048, solange keine Antwort geschrieben wird. Mehr berechnet Prompts schneller, weniger hält laufende Antworten flüssig.</translation>
    </message>
    <message>
        <source>The output head turns the last layer&apos;s result into a number for each token of the vocabulary, and most quantised files leave it in 16 bits: about 1 GB of an 8B model, read for every token. In 8 bits half of that is read, and the text may differ.</source>
        <translation>Der Ausgabekopf macht aus dem Ergebnis der letzten Schicht eine Zahl für jedes Token des Vokabulars. Die meisten quantisierten Dateien lassen ihn in 16 Bit: etwa 1 GB eines 8B-Modells, gelesen für jedes Token. In 8 Bit ist es die Hälfte, und der Text kann abweichen.</translation>
    </message>
    <message>
        <source>The pages of a sliding window have gaps, so no other text can begin with them.</source>
        <translation>Die Seiten eines gleitenden Fensters haben Lücken, darum kann kein anderer Text mit ihnen beginnen.</translation>
    </message>
    <message>
        <source>The same, against FastServe&apos;s own engine without queues.</source>
        <translation>Wie oben, gegen FastServes eigene Engine ohne Warteschlangen.</translation>
    </message>
    <message>
        <source>The smallest Qwen3, and the draft model of the larger ones.</source>
        <translation>Das kleinste Qwen3 und das Entwurfsmodell der größeren.</translation>
    </message>
    <message>
        <source>The smallest model here that reads long texts and sees pictures.</source>
        <translation>Das kleinste Modell hier, das lange Texte liest und Bilder sieht.</translation>
    </message>
    <message>
        <source>Thinks before it answers where it is asked to.</source>
        <translation>Denkt auf Wunsch nach, bevor es antwortet.</translation>
    </message>
    <message>
        <source>Thinks before it answers; only 3B parameters run per token.</source>
        <translation>Denkt nach, bevor es antwortet; nur 3B Parameter rechnen je Token.</translation>
    </message>
    <message>
        <source>Thinks long before it answers: mathematics and planning.</source>
        <translation>Denkt lange nach, bevor es antwortet: Mathematik und Planung.</translation>
    </message>
    <message>
        <source>Thinks over very long texts with a small cache.</source>
        <translation>Denkt über sehr lange Texte mit kleinem Cache nach.</translation>
    </message>
    <message>
        <source>Thinks where it is asked to; its small sibling can draft for it.</source>
        <translation>Denkt auf Wunsch nach; sein kleines Geschwister kann für es entwerfen.</translation>
    </message>
    <message>
        <source>This checkpoint has no layers for multi-token prediction (MTP).</source>
        <translation>Dieses Modell hat keine Schichten zur Vorhersage mehrerer Token (MTP).</translation>
    </message>
    <message>
        <source>This model adds learned positions to its tokens, so a query cannot be moved next to the first tokens.</source>
        <translation>Dieses Modell addiert gelernte Positionen zu seinen Token, darum lässt sich eine Anfrage nicht neben die ersten Token rücken.</translation>
    </message>
    <message>
        <source>This model caches latents, which its heads share: they are kept in 16 bits.</source>
        <translation>Dieses Modell speichert Latents, die sich seine Köpfe teilen: Sie bleiben in 16 Bit.</translation>
    </message>
    <message>
        <source>This model cannot draft with some of its layers: it has too few, or some carry states.</source>
        <translation>Dieses Modell kann nicht mit einem Teil seiner Schichten entwerfen: Es hat zu wenige, oder einige führen Zustände.</translation>
    </message>
    <message>
        <source>This model cannot use QUEST: its cache has no keys by which pages could be ranked.</source>
        <translation>Dieses Modell kann QUEST nicht nutzen: Sein Cache hat keine Schlüssel, nach denen sich Seiten ordnen ließen.</translation>
    </message>
    <message>
        <source>This model cannot use a sliding window: its kind of positions or of attention does not allow one.</source>
        <translation>Dieses Modell kann kein gleitendes Fenster nutzen: Seine Art der Positionen oder der Attention erlaubt keines.</translation>
    </message>
    <message>
        <source>This model has no EAGLE head: choose a file of one in the model menu, or make one with kvasir train-heads.</source>
        <translation>Dieses Modell hat keinen EAGLE-Kopf: im Modellmenü eine Datei wählen oder ihn mit kvasir train-heads herstellen.</translation>
    </message>
    <message>
        <source>This model has no Medusa heads: choose a file of them in the model menu, or make them with kvasir train-heads.</source>
        <translation>Dieses Modell hat keine Medusa-Köpfe: im Modellmenü eine Datei wählen oder sie mit kvasir train-heads herstellen.</translation>
    </message>
    <message>
        <source>This model&apos;s KV cache stays in 16 bits: its heads share latents (MLA), or have an odd width.</source>
        <translation>Der KV-Cache dieses Modells bleibt in 16 Bit: Seine Köpfe teilen Latents (MLA) oder haben eine ungerade Breite.</translation>
    </message>
    <message>
        <source>This model&apos;s output head is quantised in its file already.</source>
        <translation>Der Ausgabekopf dieses Modells ist in seiner Datei schon quantisiert.</translation>
    </message>
    <message>
        <source>This model&apos;s weights are not quantised: each has 16 or 32 bits.</source>
        <translation>Die Gewichte dieses Modells sind nicht quantisiert: Jedes hat 16 oder 32 Bit.</translation>
    </message>
    <message>
        <source>Throughput against latency</source>
        <translation>Durchsatz gegen Latenz</translation>
    </message>
    <message>
        <source>Time between the words of one answer, last run</source>
        <translation>Zeit zwischen den Wörtern einer Antwort, letzter Lauf</translation>
    </message>
    <message>
        <source>Time of each token</source>
        <translation>Zeit jedes Tokens</translation>
    </message>
    <message>
        <source>Tokens of the long prompt, at most</source>
        <translation>Token des langen Prompts, höchstens</translation>
    </message>
    <message>
        <source>Tokens of the shared text, at most</source>
        <translation>Token des gemeinsamen Textes, höchstens</translation>
    </message>
    <message>
        <source>Tokens that a head reads</source>
        <translation>Token, die ein Kopf liest</translation>
    </message>
    <message>
        <source>N-gram lookup first</source>
        <translation>N-Gramme zuerst</translation>
    </message>
    <message>
        <source>2 bits, K channel, V channel</source>
        <translation>2 Bit, K Kanal, V Kanal</translation>
    </message>
    <message>
        <source>2 bits, K channel, V token</source>
        <translation>2 Bit, K Kanal, V Token</translation>
    </message>
    <message>
        <source>2 bits, K token, V channel</source>
        <translation>2 Bit, K Token, V Kanal</translation>
    </message>
    <message>
        <source>2 bits, K token, V token</source>
        <translation>2 Bit, K Token, V Token</translation>
    </message>
    <message>
        <source>341 tokens</source>
        <translation>341 Token</translation>
    </message>
    <message>
        <source>4 bits, K token, V token</source>
        <translation>4 Bit, K Token, V Token</translation>
    </message>
    <message>
        <source>4 first + 1,020</source>
        <translation>4 erste + 1.020</translation>
    </message>
    <message>
        <source>4 line breaks + 1,020</source>
        <translation>4 Umbrüche + 1.020</translation>
    </message>
    <message>
        <source>80 tokens</source>
        <translation>80 Token</translation>
    </message>
    <message>
        <source>A token table stays in its file only on a processor, not on Windows, and not where it is also the output head, which is read whole for every token.</source>
        <translation>Eine Token-Tabelle bleibt nur auf einem Prozessor in ihrer Datei, nicht unter Windows, und nicht, wenn sie zugleich der Ausgabekopf ist, der für jedes Token ganz gelesen wird.</translation>
    </message>
    <message>
        <source>A100: 5 and 1</source>
        <translation>A100: 5 und 1</translation>
    </message>
    <message>
        <source>A6000: 8 and 2</source>
        <translation>A6000: 8 und 2</translation>
    </message>
    <message>
        <source>From left to right: summaries sampled, translation sampled, summaries greedy, translation greedy.</source>
        <translation>Von links nach rechts: Zusammenfassungen gezogen, Übersetzung gezogen, Zusammenfassungen gierig, Übersetzung gierig.</translation>
    </message>
    <message>
        <source>Orca (Max)</source>
        <translation>Orca (Max)</translation>
    </message>
    <message>
        <source>Orca (Oracle)</source>
        <translation>Orca (Oracle)</translation>
    </message>
    <message>
        <source>Orca (Pow2)</source>
        <translation>Orca (Pow2)</translation>
    </message>
    <message>
        <source>Passkeys found in 100k tokens</source>
        <translation>Gefundene Codes in 100k Token</translation>
    </message>
    <message>
        <source>Passkeys found in 10k tokens</source>
        <translation>Gefundene Codes in 10k Token</translation>
    </message>
    <message>
        <source>Perplexity against first tokens kept, Llama-2-7B</source>
        <translation>Perplexität nach behaltenen ersten Token, Llama-2-7B</translation>
    </message>
    <message>
        <source>Perplexity of Llama-2 in 4 bits</source>
        <translation>Perplexität von Llama-2 in 4 Bit</translation>
    </message>
    <message>
        <source>Perplexity of OPT models on WikiText2</source>
        <translation>Perplexität von OPT-Modellen auf WikiText2</translation>
    </message>
    <message>
        <source>Perplexity of a long text, Llama-2-13B</source>
        <translation>Perplexität eines langen Textes, Llama-2-13B</translation>
    </message>
    <message>
        <source>Prompt tokens from the cache in Chatbot Arena</source>
        <translation>Prompt-Token aus dem Cache in Chatbot Arena</translation>
    </message>
    <message>
        <source>QUEST</source>
        <translation>QUEST</translation>
    </message>
    <message>
        <source>QUEST, 1,024</source>
        <translation>QUEST, 1.024</translation>
    </message>
    <message>
        <source>QUEST, 2,048</source>
        <translation>QUEST, 2.048</translation>
    </message>
    <message>
        <source>QUEST, 4,096</source>
        <translation>QUEST, 4.096</translation>
    </message>
    <message>
        <source>QUEST, 512</source>
        <translation>QUEST, 512</translation>
    </message>
    <message>
        <source>Requests in a batch, on average</source>
        <translation>Anfragen in einem Stapel, im Mittel</translation>
    </message>
    <message>
        <source>Requests served at 190 ms a token, GPT-3 175B</source>
        <translation>Bediente Anfragen bei 190 ms je Token, GPT-3 175B</translation>
    </message>
    <message>
        <source>Share of the KV cache that holds tokens</source>
        <translation>Anteil des KV-Cache, der Token hält</translation>
    </message>
    <message>
        <source>ShareGPT</source>
        <translation>ShareGPT</translation>
    </message>
    <message>
        <source>Simulated: mean time to the last word</source>
        <translation>Simuliert: Zeit bis zum letzten Wort, Mittel</translation>
    </message>
    <message>
        <source>Simulated: mean wait for the first word</source>
        <translation>Simuliert: Warten auf das erste Wort, Mittel</translation>
    </message>
    <message>
        <source>Speed-up against acceptance, T5-small for T5-XXL</source>
        <translation>Beschleunigung nach Annahmerate, T5-small für T5-XXL</translation>
    </message>
    <message>
        <source>Speed-up by draft model, greedy translation</source>
        <translation>Beschleunigung nach Entwurfsmodell, gieriges Übersetzen</translation>
    </message>
    <message>
        <source>Speed-up of EAGLE against batch size</source>
        <translation>Beschleunigung durch EAGLE nach Stapelgröße</translation>
    </message>
    <message>
        <source>Speed-up of Vicuna 13B on MT-bench, greedy</source>
        <translation>Beschleunigung von Vicuna 13B auf MT-bench, gierig</translation>
    </message>
    <message>
        <source>Speed-up with Medusa heads</source>
        <translation>Beschleunigung mit Medusa-Köpfen</translation>
    </message>
    <message>
        <source>StreamingLLM</source>
        <translation>StreamingLLM</translation>
    </message>
    <message>
        <source>T5-XXL, 11B</source>
        <translation>T5-XXL, 11B</translation>
    </message>
    <message>
        <source>T5-base, 250M</source>
        <translation>T5-base, 250M</translation>
    </message>
    <message>
        <source>T5-large, 800M</source>
        <translation>T5-large, 800M</translation>
    </message>
    <message>
        <source>T5-small, 77M</source>
        <translation>T5-small, 77M</translation>
    </message>
    <message>
        <source>TOVA</source>
        <translation>TOVA</translation>
    </message>
    <message>
        <source>The token table has a row of numbers for every token of the vocabulary, and a step reads the rows of its tokens alone. Left in the model&apos;s file it takes no memory of the engine&apos;s: the system holds what was read for as long as nothing else wants the room.</source>
        <translation>Die Token-Tabelle hat für jedes Token des Vokabulars eine Zeile von Zahlen, und ein Schritt liest nur die Zeilen seiner Token. In der Datei des Modells belassen braucht sie keinen Speicher der Engine: Das System behält Gelesenes, solange nichts anderes den Platz braucht.</translation>
    </message>
    <message>
        <source>Throughput against batch size, Llama-3.1-8B on an H100</source>
        <translation>Durchsatz nach Stapelgröße, Llama-3.1-8B auf einer H100</translation>
    </message>
    <message>
        <source>Throughput with a shared prefix</source>
        <translation>Durchsatz mit gemeinsamem Präfix</translation>
    </message>
    <message>
        <source>Time between tokens, 99th percentile, Yi-34B</source>
        <translation>Zeit zwischen Token, 99. Perzentil, Yi-34B</translation>
    </message>
    <message>
        <source>Time per token against context, 16-bit weights</source>
        <translation>Zeit je Token nach Kontext, 16-Bit-Gewichte</translation>
    </message>
    <message>
        <source>Time per token against tokens in sight, Llama-2-13B</source>
        <translation>Zeit je Token nach Token in Sicht, Llama-2-13B</translation>
    </message>
    <message>
        <source>Time per token of OPT-175B</source>
        <translation>Zeit je Token von OPT-175B</translation>
    </message>
    <message>
        <source>Time per token on an RTX 4090</source>
        <translation>Zeit je Token auf einer RTX 4090</translation>
    </message>
    <message>
        <source>Token table</source>
        <translation>Token-Tabelle</translation>
    </message>
    <message>
        <source>Tokens per step of Vicuna 13B on MT-bench, greedy</source>
        <translation>Token je Schritt von Vicuna 13B auf MT-bench, gierig</translation>
    </message>
    <message>
        <source>Twelve people ask about the same long text, and each question would read all of it again before the first word. A prefix tree keeps the keys and values of what was read, and every prompt that begins alike continues from there.</source>
        <translation>Zwölf Personen fragen nach demselben langen Text, und jede Frage würde ihn vor dem ersten Wort ganz neu lesen. Ein Präfixbaum bewahrt die Schlüssel und Werte des Gelesenen auf, und jeder Prompt, der gleich beginnt, setzt dort fort.</translation>
    </message>
    <message>
        <source>Up to 6.4 times the throughput and 3.7 times less latency; 50 to 99 % of prompt tokens come from the cache, 96 % of what the best order would find.</source>
        <translation>Bis zum 6,4-fachen Durchsatz und 3,7-mal weniger Latenz; 50 bis 99 % der Prompt-Token kommen aus dem Cache, 96 % dessen, was die beste Reihenfolge fände.</translation>
    </message>
    <message>
        <source>Users</source>
        <translation>Personen</translation>
    </message>
    <message>
        <source>Vicuna 13B</source>
        <translation>Vicuna 13B</translation>
    </message>
    <message>
        <source>Vicuna 13B, MT-bench, greedy. The table&apos;s caption names A100 GPUs, the text RTX 3090 for models below 70B.</source>
        <translation>Vicuna 13B, MT-bench, gierig. Die Tabelle nennt A100, der Text RTX 3090 für Modelle unter 70B.</translation>
    </message>
    <message>
        <source>Vicuna 13B, MT-bench, greedy. The table&apos;s caption names A100 GPUs, the text RTX 3090 for models below 70B; the authors&apos; README gives 5.6 times on two RTX 3090 at fp16.</source>
        <translation>Vicuna 13B, MT-bench, gierig. Die Tabelle nennt A100, der Text RTX 3090 für Modelle unter 70B; die README der Autoren nennt 5,6-mal auf zwei RTX 3090 in fp16.</translation>
    </message>
    <message>
        <source>Vicuna 7B</source>
        <translation>Vicuna 7B</translation>
    </message>
    <message>
        <source>Vicuna 7B and 13B v1.5, five heads trained on ShareGPT, MT-Bench, batch size 1, against Hugging Face; the section names no GPU.</source>
        <translation>Vicuna 7B und 13B v1.5, fünf auf ShareGPT trainierte Köpfe, MT-Bench, Stapelgröße 1, gegen Hugging Face; der Abschnitt nennt keine GPU.</translation>
    </message>
    <message>
        <source>Vicuna 7B and LLaMA2-Chat 70B at fp16, MT-bench, greedy; the largest batches fit on one RTX 3090 (24 GB) and on four A100 (40 GB).</source>
        <translation>Vicuna 7B und LLaMA2-Chat 70B in fp16, MT-bench, gierig; die größten Stapel haben auf einer RTX 3090 (24 GB) und auf vier A100 (40 GB) Platz.</translation>
    </message>
    <message>
        <source>Weights</source>
        <translation>Gewichte</translation>
    </message>
    <message>
        <source>Weights in 4 bits</source>
        <translation>Gewichte in 4 Bit</translation>
    </message>
    <message>
        <source>What a KIVI cache packs in a step is planned on the host, which cannot be captured.</source>
        <translation>Was ein KIVI-Cache in einem Schritt packt, wird auf dem Prozessor geplant; das lässt sich nicht aufzeichnen.</translation>
    </message>
    <message>
        <source>What a KIVI cache packs is planned step by step.</source>
        <translation>Was ein KIVI-Cache packt, wird Schritt für Schritt geplant.</translation>
    </message>
    <message>
        <source>What a token reads</source>
        <translation>Was ein Token liest</translation>
    </message>
    <message>
        <source>What is lost for the memory that is won</source>
        <translation>Was für den gewonnenen Speicher verloren geht</translation>
    </message>
    <message>
        <source>What lies before the window is forgotten: a fact from the beginning cannot be found again. A model that does not lean on its first tokens gains nothing from keeping them.</source>
        <translation>Was vor dem Fenster liegt, ist vergessen: Eine Tatsache vom Anfang lässt sich nicht wiederfinden. Ein Modell, das sich nicht auf seine ersten Token stützt, gewinnt nichts, wenn sie bleiben.</translation>
    </message>
    <message>
        <source>What many programs and adapters were made for.</source>
        <translation>Dafür wurden viele Programme und Adapter gemacht.</translation>
    </message>
    <message>
        <source>When memory is full</source>
        <translation>Wenn der Speicher voll ist</translation>
    </message>
    <message>
        <source>When speculation pays</source>
        <translation>Wann Spekulation sich lohnt</translation>
    </message>
    <message>
        <source>When the KV cache is full, the newest answer is paused (preempted) so that older ones can go on. This says what becomes of its keys and values until it continues.</source>
        <translation>Ist der KV-Cache voll, wird die neueste Antwort zurückgestellt (Preemption), damit ältere weitergehen. Dies sagt, was bis dahin aus ihren Schlüsseln und Werten wird.</translation>
    </message>
    <message>
        <source>Where a schema or grammar leaves only one text, such as the next key of a JSON object, its tokens are read in one pass. They are not guessed: the model could write no others.</source>
        <translation>Lassen ein Schema oder eine Grammatik nur einen Text zu, etwa den nächsten Schlüssel eines JSON-Objekts, werden dessen Token in einem Durchgang gelesen. Sie sind nicht geraten: Das Modell könnte keine anderen schreiben.</translation>
    </message>
    <message>
        <source>Where arithmetic is the limit, as with many answers on a processor, a larger batch only makes each slower. Long texts have keys and values of their own to read, which nobody shares.</source>
        <translation>Wo das Rechnen die Grenze ist, etwa bei vielen Antworten auf einem Prozessor, macht ein größerer Stapel nur jede langsamer. Lange Texte haben eigene Schlüssel und Werte zu lesen, die niemand teilt.</translation>
    </message>
    <message>
        <source>Where chunks share batches with the answers under way, 99 of 100 tokens come within 0.14 s of the one before; where prompts are read whole, within 0.68 s. The median first token comes after 0.76 s instead of 0.53 s.</source>
        <translation>Teilen sich Stücke die Stapel mit laufenden Antworten, kommen 99 von 100 Token innerhalb von 0,14 s nach dem vorigen; werden Prompts ganz gelesen, innerhalb von 0,68 s. Das erste Token kommt im Median nach 0,76 s statt 0,53 s.</translation>
    </message>
    <message>
        <source>Where nobody waits, the order does not matter; where all answers are about as long, taking turns makes most of them later. The long answers themselves are done later.</source>
        <translation>Wo niemand wartet, ist die Reihenfolge gleich; wo alle Antworten etwa gleich lang sind, verspätet das Abwechseln die meisten. Die langen Antworten selbst sind später fertig.</translation>
    </message>
    <message>
        <source>Where nothing can be shared, keeping the tree costs 0.2 of 74.3 seconds, less than 0.3 %.</source>
        <translation>Wo sich nichts teilen lässt, kostet das Führen des Baums 0,2 von 74,3 Sekunden, weniger als 0,3 %.</translation>
    </message>
    <message>
        <source>Where the last few tokens occurred earlier in the chat, what followed them is drafted, which costs nothing. Elsewhere, and where such drafts held too seldom, the chosen method drafts.</source>
        <translation>Kamen die letzten Token schon früher im Chat vor, wird entworfen, was ihnen dort folgte; das kostet nichts. Sonst, und wo solche Entwürfe zu selten hielten, entwirft das gewählte Verfahren.</translation>
    </message>
    <message>
        <source>Window size (tokens)</source>
        <translation>Fenstergröße (Token)</translation>
    </message>
    <message>
        <source>With 2 bits for a number instead of 16, how much more text fits into the same memory?</source>
        <translation>Wie viel mehr Text hat mit 2 statt 16 Bit je Zahl im selben Speicher Platz?</translation>
    </message>
    <message>
        <source>With 24 requests at once EAGLE makes a server slower, to 0.93 of its throughput; EAGLE-3 still gives 1.38 times with 64.</source>
        <translation>Mit 24 Anfragen zugleich macht EAGLE einen Server langsamer, auf das 0,93-Fache seines Durchsatzes; EAGLE-3 gibt noch mit 64 das 1,38-Fache.</translation>
    </message>
    <message>
        <source>With one chat at a time nobody waits, and a prompt that is no longer than a chunk is read whole anyway. The long prompt itself has its first word later, the more so the smaller the chunks are.</source>
        <translation>Mit einem Chat zur Zeit wartet niemand, und ein Prompt, der nicht länger als ein Stück ist, wird ohnehin ganz gelesen. Der lange Prompt selbst bekommt sein erstes Wort später, umso mehr, je kleiner die Stücke sind.</translation>
    </message>
    <message>
        <source>With one chat at a time there is nobody to share with; where arithmetic is the limit and not memory, as on a processor with few cores, each further answer makes the pass longer.</source>
        <translation>Mit einem Chat zur Zeit gibt es niemanden zum Teilen; wo das Rechnen die Grenze ist und nicht der Speicher, etwa auf einem Prozessor mit wenigen Kernen, verlängert jede weitere Antwort den Durchgang.</translation>
    </message>
    <message>
        <source>With pages 96.3 % of the KV cache&apos;s memory hold tokens; contiguous reservations leave only 20.4 to 38.2 % of it in use.</source>
        <translation>Mit Seiten enthalten 96,3 % des KV-Cache-Speichers Token; zusammenhängende Reservierungen nutzen nur 20,4 bis 38,2 % davon.</translation>
    </message>
    <message>
        <source>With pages as well, a server keeps up with 1.7 to 2.7 times the request rate of Orca (Oracle), 2.7 to 8 times that of Orca (Max), and up to 22 times that of FasterTransformer.</source>
        <translation>Kommen Seiten hinzu, hält ein Server mit der 1,7- bis 2,7-fachen Anfragerate von Orca (Oracle) mit, der 2,7- bis 8-fachen von Orca (Max) und bis zur 22-fachen von FasterTransformer.</translation>
    </message>
    <message>
        <source>With the same target for the time between tokens, a server takes 2.6 times the requests a second of vLLM (Mistral-7B), up to 3.7 times (Yi-34B) and 5.6 times (Falcon-180B, in pipeline stages).</source>
        <translation>Bei gleichem Ziel für die Zeit zwischen Token nimmt ein Server 2,6-mal so viele Anfragen je Sekunde an wie vLLM (Mistral-7B), bis zu 3,7-mal so viele (Yi-34B) und 5,6-mal so viele (Falcon-180B, in Pipeline-Stufen).</translation>
    </message>
    <message>
        <source>Without a KV cache each token computes the whole text again, and that grows; with it, each token computes one row.</source>
        <translation>Ohne KV-Cache berechnet jedes Token den ganzen Text neu, und der wächst; mit ihm berechnet jedes Token eine Zeile.</translation>
    </message>
    <message>
        <source>Without the KV cache every step has another size.</source>
        <translation>Ohne KV-Cache hat jeder Schritt eine andere Größe.</translation>
    </message>
    <message>
        <source>Without the KV cache every step reads the whole text, and nothing is drafted.</source>
        <translation>Ohne KV-Cache liest jeder Schritt den ganzen Text, und nichts wird entworfen.</translation>
    </message>
    <message>
        <source>Without the KV cache every step reads the whole text, which is too many rows.</source>
        <translation>Ohne KV-Cache liest jeder Schritt den ganzen Text, und das sind zu viele Zeilen.</translation>
    </message>
    <message>
        <source>Without the KV cache every step reads the whole text.</source>
        <translation>Ohne KV-Cache liest jeder Schritt den ganzen Text.</translation>
    </message>
    <message>
        <source>Without the KV cache nothing is kept from one step to the next.</source>
        <translation>Ohne KV-Cache bleibt von einem Schritt zum nächsten nichts erhalten.</translation>
    </message>
    <message>
        <source>Writes and explains code in 6 GB.</source>
        <translation>Schreibt und erklärt Code in 6 GB.</translation>
    </message>
    <message>
        <source>Yarn-Llama-2-7b-128k, passkey retrieval in 100k tokens, budgets of 256 to 4,096 tokens.</source>
        <translation>Yarn-Llama-2-7b-128k, Schlüsselsuche in 100k Token, Budgets von 256 bis 4.096 Token.</translation>
    </message>
    <message>
        <source>Yi-34B on two A100 GPUs, 128 requests of ShareGPT conversations, a budget of 1,024 tokens a batch.</source>
        <translation>Yi-34B auf zwei A100, 128 Anfragen aus ShareGPT-Gesprächen, ein Budget von 1.024 Token je Stapel.</translation>
    </message>
    <message>
        <source>a minute</source>
        <translation>je Minute</translation>
    </message>
    <message>
        <source>a pass, median</source>
        <translation>ein Durchgang, Median</translation>
    </message>
    <message>
        <source>a small download</source>
        <translation>ein kleiner Download</translation>
    </message>
    <message>
        <source>a token near the beginning</source>
        <translation>ein Token gegen Anfang</translation>
    </message>
    <message>
        <source>a token near the end</source>
        <translation>ein Token gegen Ende</translation>
    </message>
    <message>
        <source>about the same</source>
        <translation>etwa gleich</translation>
    </message>
    <message>
        <source>acceptance rate by draft position</source>
        <translation>Annahmequote nach Stelle im Entwurf</translation>
    </message>
    <message>
        <source>acceptance rate of the draft tokens that were checked</source>
        <translation>Annahmequote der geprüften Entwurfs-Token</translation>
    </message>
    <message>
        <source>all of the text</source>
        <translation>ganzer Text</translation>
    </message>
    <message>
        <source>answers questions about Kvasir, and nothing else</source>
        <translation>beantwortet Fragen zu Kvasir und sonst nichts</translation>
    </message>
    <message>
        <source>as fast</source>
        <translation>gleich schnell</translation>
    </message>
    <message>
        <source>as in the file</source>
        <translation>wie die Datei</translation>
    </message>
    <message>
        <source>as much</source>
        <translation>gleich viel</translation>
    </message>
    <message>
        <source>assistant</source>
        <translation>Assistent</translation>
    </message>
    <message>
        <source>attention scores</source>
        <translation>Attention-Werte</translation>
    </message>
    <message>
        <source>auto</source>
        <translation>auto</translation>
    </message>
    <message>
        <source>because nothing else may come (grammar)</source>
        <translation>weil nichts anderes kommen darf (Grammatik)</translation>
    </message>
    <message>
        <source>between the lowest and the highest run</source>
        <translation>zwischen dem niedrigsten und dem höchsten Lauf</translation>
    </message>
    <message>
        <source>between two tokens</source>
        <translation>zwischen zwei Token</translation>
    </message>
    <message>
        <source>between two tokens of an answer</source>
        <translation>zwischen zwei Token einer Antwort</translation>
    </message>
    <message>
        <source>billion</source>
        <translation>Mrd.</translation>
    </message>
    <message>
        <source>bits of a weight</source>
        <translation>Bits eines Gewichts</translation>
    </message>
    <message>
        <source>bits per element, and perplexity against 16 bits</source>
        <translation>Bits je Element und Perplexität gegen 16 Bit</translation>
    </message>
    <message>
        <source>by the EAGLE head</source>
        <translation>vom EAGLE-Kopf</translation>
    </message>
    <message>
        <source>by the Gemma 4 assistant</source>
        <translation>vom Gemma-4-Assistenten</translation>
    </message>
    <message>
        <source>by the Medusa heads</source>
        <translation>von den Medusa-Köpfen</translation>
    </message>
    <message>
        <source>by the draft model</source>
        <translation>vom Entwurfsmodell</translation>
    </message>
    <message>
        <source>by the formula, at this machine&apos;s costs</source>
        <translation>nach der Formel, mit den Kosten dieses Computers</translation>
    </message>
    <message>
        <source>by the model with layers left out (layer skipping)</source>
        <translation>vom Modell mit ausgelassenen Schichten (Schichten auslassen)</translation>
    </message>
    <message>
        <source>by the model&apos;s first layers (early exit)</source>
        <translation>von den ersten Schichten des Modells (früher Ausstieg)</translation>
    </message>
    <message>
        <source>by the model&apos;s multi-token layers</source>
        <translation>von den Mehr-Token-Schichten des Modells</translation>
    </message>
    <message>
        <source>bytes</source>
        <translation>Byte</translation>
    </message>
    <message>
        <source>bytes read per token</source>
        <translation>gelesene Bytes je Token</translation>
    </message>
    <message>
        <source>bytes read per token, and tokens per second</source>
        <translation>gelesene Bytes je Token und Token je Sekunde</translation>
    </message>
    <message>
        <source>cache hit rate</source>
        <translation>Trefferquote</translation>
    </message>
    <message>
        <source>cache of this answer</source>
        <translation>Cache dieser Antwort</translation>
    </message>
    <message>
        <source>calls four tools: for trying out clients that have some</source>
        <translation>ruft vier Werkzeuge auf: zum Ausprobieren</translation>
    </message>
    <message>
        <source>channel (how far it is off, as a share of its usual size)</source>
        <translation>Kanal (Abweichung als Anteil seiner üblichen Größe)</translation>
    </message>
    <message>
        <source>channel (size of the key)</source>
        <translation>Kanal (Größe des Schlüssels)</translation>
    </message>
    <message>
        <source>chats</source>
        <translation>Chats</translation>
    </message>
    <message>
        <source>chats and sees pictures</source>
        <translation>chattet und sieht Bilder</translation>
    </message>
    <message>
        <source>chats at once</source>
        <translation>Chats zugleich</translation>
    </message>
    <message>
        <source>chats at once, at most</source>
        <translation>Chats zugleich, höchstens</translation>
    </message>
    <message>
        <source>chats that fit at once, and the share of slots that hold no token</source>
        <translation>Chats, die zugleich Platz haben, und der Anteil der Plätze ohne Token</translation>
    </message>
    <message>
        <source>choosing pages</source>
        <translation>Seiten auswählen</translation>
    </message>
    <message>
        <source>chunked prefill</source>
        <translation>Chunked Prefill</translation>
    </message>
    <message>
        <source>chunked, with step targets</source>
        <translation>in Stücken, mit Zeitzielen</translation>
    </message>
    <message>
        <source>chunks, not mixed</source>
        <translation>Stücke, nicht gemischt</translation>
    </message>
    <message>
        <source>codes found again</source>
        <translation>wiedergefundene Codes</translation>
    </message>
    <message>
        <source>computed</source>
        <translation>berechnet</translation>
    </message>
    <message>
        <source>context</source>
        <translation>Kontext</translation>
    </message>
    <message>
        <source>contiguous, whole context</source>
        <translation>am Stück, ganzer Kontext</translation>
    </message>
    <message>
        <source>continuous batching</source>
        <translation>laufende Stapel</translation>
    </message>
    <message>
        <source>draft model</source>
        <translation>Entwurfsmodell</translation>
    </message>
    <message>
        <source>draft tokens accepted</source>
        <translation>angenommene Entwurfs-Token</translation>
    </message>
    <message>
        <source>drafts, checked</source>
        <translation>geprüfte Entwürfe</translation>
    </message>
    <message>
        <source>each prompt read whole</source>
        <translation>jeder Prompt ganz gelesen</translation>
    </message>
    <message>
        <source>early exit</source>
        <translation>früher Ausstieg</translation>
    </message>
    <message>
        <source>energy a token</source>
        <translation>Energie je Token</translation>
    </message>
    <message>
        <source>estimated from a measurement of some layers</source>
        <translation>geschätzt aus einer Messung einiger Schichten</translation>
    </message>
    <message>
        <source>exact match</source>
        <translation>exakte Treffer</translation>
    </message>
    <message>
        <source>expected by the formula</source>
        <translation>nach der Formel erwartet</translation>
    </message>
    <message>
        <source>file</source>
        <translation>Datei</translation>
    </message>
    <message>
        <source>filling the cache with whole contexts</source>
        <translation>Cache mit ganzen Kontexten füllen</translation>
    </message>
    <message>
        <source>finds codes in long texts: for KIVI and QUEST in the Lab</source>
        <translation>findet Codes in langen Texten: für KIVI und QUEST im Labor</translation>
    </message>
    <message>
        <source>first come, first served</source>
        <translation>Reihenfolge, wie gestellt</translation>
    </message>
    <message>
        <source>first pass</source>
        <translation>erster Durchgang</translation>
    </message>
    <message>
        <source>first token, median</source>
        <translation>erstes Token, Median</translation>
    </message>
    <message>
        <source>first tokens kept</source>
        <translation>behaltene erste Token</translation>
    </message>
    <message>
        <source>first word of the long prompt</source>
        <translation>erstes Wort des langen Prompts</translation>
    </message>
    <message>
        <source>found</source>
        <translation>gefunden</translation>
    </message>
    <message>
        <source>from the cache</source>
        <translation>aus dem Cache</translation>
    </message>
    <message>
        <source>from what the text repeats (n-gram)</source>
        <translation>aus Wiederholungen im Text (N-Gramm)</translation>
    </message>
    <message>
        <source>full</source>
        <translation>vollständig</translation>
    </message>
    <message>
        <source>full attention (FlashInfer)</source>
        <translation>volle Attention (FlashInfer)</translation>
    </message>
    <message>
        <source>full cache</source>
        <translation>ganzer Cache</translation>
    </message>
    <message>
        <source>grammar</source>
        <translation>Grammatik</translation>
    </message>
    <message>
        <source>inter-token latency of other answers during a long prefill</source>
        <translation>Latenz zwischen Token anderer Antworten, während ein langer Prompt gelesen wird</translation>
    </message>
    <message>
        <source>inter-token latency of other answers during a long prefill, and the share of answers in time</source>
        <translation>Latenz zwischen Token anderer Antworten, während ein langer Prompt gelesen wird, und der Anteil der rechtzeitigen Antworten</translation>
    </message>
    <message>
        <source>keys and values read</source>
        <translation>gelesene Schlüssel und Werte</translation>
    </message>
    <message>
        <source>keys and values read a token</source>
        <translation>gelesene Schlüssel und Werte je Token</translation>
    </message>
    <message>
        <source>keys quantised</source>
        <translation>Schlüssel quantisiert</translation>
    </message>
    <message>
        <source>kvasir-guide never learned to find a code that is hidden in a long text.</source>
        <translation>kvasir-guide hat nie gelernt, einen Code in einem langen Text zu finden.</translation>
    </message>
    <message>
        <source>kvasir-needle, which comes with Kvasir, can show it.</source>
        <translation>kvasir-needle, das mit Kvasir kommt, kann es zeigen.</translation>
    </message>
    <message>
        <source>layer skipping</source>
        <translation>Schichten auslassen</translation>
    </message>
    <message>
        <source>load</source>
        <translation>Last</translation>
    </message>
    <message>
        <source>loading the model with a small cache</source>
        <translation>Modell mit kleinem Cache laden</translation>
    </message>
    <message>
        <source>longest pause between two words</source>
        <translation>längste Pause zwischen zwei Wörtern</translation>
    </message>
    <message>
        <source>looking for a long answer</source>
        <translation>lange Antwort suchen</translation>
    </message>
    <message>
        <source>looking for a prompt of fitting length</source>
        <translation>Prompt passender Länge suchen</translation>
    </message>
    <message>
        <source>looking for answers of unlike length</source>
        <translation>Antworten verschiedener Länge suchen</translation>
    </message>
    <message>
        <source>looking how fast the model writes</source>
        <translation>Tempo des Modells ermitteln</translation>
    </message>
    <message>
        <source>lossless</source>
        <translation>verlustfrei</translation>
    </message>
    <message>
        <source>lossless, other sample (rejection sampling)</source>
        <translation>verlustfrei, andere Ziehung (Rejection Sampling)</translation>
    </message>
    <message>
        <source>making room for keys and values</source>
        <translation>Platz für Schlüssel und Werte schaffen</translation>
    </message>
    <message>
        <source>mean time to completion and to the first token, with many requests waiting</source>
        <translation>mittlere Zeit bis zum Ende und bis zum ersten Token, wenn viele Anfragen warten</translation>
    </message>
    <message>
        <source>mean time to the last word</source>
        <translation>Zeit bis zum letzten Wort, Mittel</translation>
    </message>
    <message>
        <source>mean wait for the first word</source>
        <translation>Warten auf das erste Wort, Mittel</translation>
    </message>
    <message>
        <source>measured</source>
        <translation>gemessen</translation>
    </message>
    <message>
        <source>measuring 8-bit activations</source>
        <translation>8-Bit-Aktivierungen messen</translation>
    </message>
    <message>
        <source>memory</source>
        <translation>Speicher</translation>
    </message>
    <message>
        <source>memory of the weights</source>
        <translation>Speicher der Gewichte</translation>
    </message>
    <message>
        <source>memory of the weights, and bytes read per token</source>
        <translation>Speicher der Gewichte und gelesene Bytes je Token</translation>
    </message>
    <message>
        <source>ms</source>
        <translation>ms</translation>
    </message>
    <message>
        <source>multi-token</source>
        <translation>Mehr-Token</translation>
    </message>
    <message>
        <source>multi-token layers of the model&apos;s own file</source>
        <translation>Mehr-Token-Schichten aus der Datei des Modells</translation>
    </message>
    <message>
        <source>n-gram</source>
        <translation>N-Gramm</translation>
    </message>
    <message>
        <source>n-gram (PLD)</source>
        <translation>N-Gramm (PLD)</translation>
    </message>
    <message>
        <source>n-gram lookup</source>
        <translation>N-Gramm-Suche</translation>
    </message>
    <message>
        <source>nats</source>
        <translation>nat</translation>
    </message>
    <message>
        <source>no drafts</source>
        <translation>keine Entwürfe</translation>
    </message>
    <message>
        <source>no less</source>
        <translation>nicht weniger</translation>
    </message>
    <message>
        <source>no more</source>
        <translation>nicht mehr</translation>
    </message>
    <message>
        <source>no shorter</source>
        <translation>nicht kürzer</translation>
    </message>
    <message>
        <source>no sooner</source>
        <translation>nicht früher</translation>
    </message>
    <message>
        <source>none</source>
        <translation>keine</translation>
    </message>
    <message>
        <source>not at all</source>
        <translation>gar nicht</translation>
    </message>
    <message>
        <source>off</source>
        <translation>aus</translation>
    </message>
    <message>
        <source>on virtual time, with what passes took in these runs; 100 %: all that the model does. Shortest remaining first knows the lengths.</source>
        <translation>in virtueller Zeit, mit der Dauer der Durchgänge in diesen Läufen; 100 %: alles, was das Modell leistet. „Kürzester Rest zuerst“ kennt die Längen.</translation>
    </message>
    <message>
        <source>one answer</source>
        <translation>eine Antwort</translation>
    </message>
    <message>
        <source>one by one</source>
        <translation>einzeln</translation>
    </message>
    <message>
        <source>operations</source>
        <translation>Operationen</translation>
    </message>
    <message>
        <source>packed</source>
        <translation>gepackt</translation>
    </message>
    <message>
        <source>packed products</source>
        <translation>gepackte Produkte</translation>
    </message>
    <message>
        <source>page by page</source>
        <translation>seitenweise</translation>
    </message>
    <message>
        <source>paged (PagedAttention)</source>
        <translation>seitenweise (PagedAttention)</translation>
    </message>
    <message>
        <source>pages of a long answer</source>
        <translation>Seiten einer langen Antwort</translation>
    </message>
    <message>
        <source>pages of a long answer, bytes read per token, and perplexity</source>
        <translation>Seiten einer langen Antwort, gelesene Bytes je Token und Perplexität</translation>
    </message>
    <message>
        <source>parameters</source>
        <translation>Parameter</translation>
    </message>
    <message>
        <source>passes through the model</source>
        <translation>Durchgänge durch das Modell</translation>
    </message>
    <message>
        <source>passes through the model until an answer is done</source>
        <translation>Durchgänge durch das Modell, bis eine Antwort fertig ist</translation>
    </message>
    <message>
        <source>per channel</source>
        <translation>je Kanal</translation>
    </message>
    <message>
        <source>per token</source>
        <translation>je Token</translation>
    </message>
    <message>
        <source>perplexity</source>
        <translation>Perplexität</translation>
    </message>
    <message>
        <source>perplexity against 16 bits</source>
        <translation>Perplexität gegen 16 Bit</translation>
    </message>
    <message>
        <source>perplexity past the window</source>
        <translation>Perplexität jenseits des Fensters</translation>
    </message>
    <message>
        <source>place in the text</source>
        <translation>Stelle im Text</translation>
    </message>
    <message>
        <source>prefix tree</source>
        <translation>Präfixbaum</translation>
    </message>
    <message>
        <source>processor&apos;s cache</source>
        <translation>Cache des Prozessors</translation>
    </message>
    <message>
        <source>prompt tokens computed</source>
        <translation>berechnete Prompt-Token</translation>
    </message>
    <message>
        <source>prompt tokens found instead of computed, and bytes in RAM</source>
        <translation>Prompt-Token, die gefunden statt berechnet werden, und Bytes im RAM</translation>
    </message>
    <message>
        <source>prompt tokens from the cache</source>
        <translation>Prompt-Token aus dem Cache</translation>
    </message>
    <message>
        <source>quantising weights</source>
        <translation>Gewichte quantisieren</translation>
    </message>
    <message>
        <source>quantising weights of the draft model</source>
        <translation>Gewichte des Entwurfsmodells quantisieren</translation>
    </message>
    <message>
        <source>read per token</source>
        <translation>gelesen je Token</translation>
    </message>
    <message>
        <source>reading texts</source>
        <translation>Texte lesen</translation>
    </message>
    <message>
        <source>reading weights</source>
        <translation>Gewichte lesen</translation>
    </message>
    <message>
        <source>reading weights of the draft model</source>
        <translation>Gewichte des Entwurfsmodells lesen</translation>
    </message>
    <message>
        <source>recompute</source>
        <translation>neu rechnen</translation>
    </message>
    <message>
        <source>relative error</source>
        <translation>relativer Fehler</translation>
    </message>
    <message>
        <source>requests at once</source>
        <translation>Anfragen zugleich</translation>
    </message>
    <message>
        <source>requests done</source>
        <translation>fertige Anfragen</translation>
    </message>
    <message>
        <source>requests/s</source>
        <translation>Anfragen/s</translation>
    </message>
    <message>
        <source>rounded to nearest</source>
        <translation>gerundet</translation>
    </message>
    <message>
        <source>runs here, but not well</source>
        <translation>läuft hier, aber nicht gut</translation>
    </message>
    <message>
        <source>runs well here</source>
        <translation>läuft hier gut</translation>
    </message>
    <message>
        <source>s</source>
        <translation>s</translation>
    </message>
    <message>
        <source>score</source>
        <translation>Punktzahl</translation>
    </message>
    <message>
        <source>seconds that a paused answer waits, and pages in RAM</source>
        <translation>Sekunden, die eine zurückgestellte Antwort wartet, und Seiten im RAM</translation>
    </message>
    <message>
        <source>sees coloured shapes: for trying out pictures</source>
        <translation>sieht farbige Formen: zum Ausprobieren von Bildern</translation>
    </message>
    <message>
        <source>service classes</source>
        <translation>Dienstklassen</translation>
    </message>
    <message>
        <source>share</source>
        <translation>Anteil</translation>
    </message>
    <message>
        <source>share of answers in time (goodput)</source>
        <translation>Anteil der rechtzeitigen Antworten (Goodput)</translation>
    </message>
    <message>
        <source>share of draft tokens accepted</source>
        <translation>Anteil angenommener Entwurfs-Token</translation>
    </message>
    <message>
        <source>share of prompt tokens found in the cache, with many requests waiting</source>
        <translation>Anteil der Prompt-Token, die im Cache liegen, wenn viele Anfragen warten</translation>
    </message>
    <message>
        <source>shared prefix</source>
        <translation>gemeinsames Präfix</translation>
    </message>
    <message>
        <source>shortest remaining first</source>
        <translation>kürzester Rest zuerst</translation>
    </message>
    <message>
        <source>shows hybrid layers (gated delta nets) and built-in speculative decoding</source>
        <translation>zeigt hybride Schichten (Gated Delta Nets) und eingebautes spekulatives Decodieren</translation>
    </message>
    <message>
        <source>simulating other loads</source>
        <translation>andere Lasten simulieren</translation>
    </message>
    <message>
        <source>since the long prompt arrived</source>
        <translation>seit dem Eintreffen des langen Prompts</translation>
    </message>
    <message>
        <source>skip-join MLFQ</source>
        <translation>Skip-Join MLFQ</translation>
    </message>
    <message>
        <source>sliding window + sinks (StreamingLLM)</source>
        <translation>gleitendes Fenster + Sinks (StreamingLLM)</translation>
    </message>
    <message>
        <source>slots of the pages taken that hold a token</source>
        <translation>Plätze belegter Seiten, die ein Token enthalten</translation>
    </message>
    <message>
        <source>slower</source>
        <translation>langsamer</translation>
    </message>
    <message>
        <source>sparse (QUEST)</source>
        <translation>ausgewählt (QUEST)</translation>
    </message>
    <message>
        <source>speed</source>
        <translation>Tempo</translation>
    </message>
    <message>
        <source>speed of all answers together</source>
        <translation>Tempo aller Antworten zusammen</translation>
    </message>
    <message>
        <source>speed, times that without drafts</source>
        <translation>Tempo, Vielfaches von ohne Entwürfe</translation>
    </message>
    <message>
        <source>speed-up</source>
        <translation>Beschleunigung</translation>
    </message>
    <message>
        <source>static batches of 4</source>
        <translation>statische Stapel zu 4</translation>
    </message>
    <message>
        <source>static batching</source>
        <translation>statische Stapel</translation>
    </message>
    <message>
        <source>swap to RAM</source>
        <translation>in den RAM auslagern</translation>
    </message>
    <message>
        <source>target of interactive answers</source>
        <translation>Ziel interaktiver Antworten</translation>
    </message>
    <message>
        <source>the best answers that run well here</source>
        <translation>die besten Antworten, die hier gut laufen</translation>
    </message>
    <message>
        <source>the most that a text of that length holds</source>
        <translation>das Meiste, das ein Text dieser Länge belegt</translation>
    </message>
    <message>
        <source>throughput</source>
        <translation>Durchsatz</translation>
    </message>
    <message>
        <source>throughput against Orca (Oracle)</source>
        <translation>Durchsatz gegen Orca (Oracle)</translation>
    </message>
    <message>
        <source>throughput against plain decoding</source>
        <translation>Durchsatz gegen einfaches Decodieren</translation>
    </message>
    <message>
        <source>time a token</source>
        <translation>Zeit je Token</translation>
    </message>
    <message>
        <source>time between tokens</source>
        <translation>Zeit zwischen Token</translation>
    </message>
    <message>
        <source>time between two words while it is read, median</source>
        <translation>Zeit zwischen zwei Wörtern, während er gelesen wird, Median</translation>
    </message>
    <message>
        <source>time between words</source>
        <translation>Zeit zwischen Wörtern</translation>
    </message>
    <message>
        <source>time of an answer</source>
        <translation>Zeit einer Antwort</translation>
    </message>
    <message>
        <source>time of the next token</source>
        <translation>Zeit des nächsten Tokens</translation>
    </message>
    <message>
        <source>time per token</source>
        <translation>Zeit je Token</translation>
    </message>
    <message>
        <source>time to first token against inter-token latency</source>
        <translation>Zeit bis zum ersten Token gegen die Latenz zwischen Token</translation>
    </message>
    <message>
        <source>time to first token of a chat from an earlier day</source>
        <translation>Zeit bis zum ersten Token eines Chats von einem früheren Tag</translation>
    </message>
    <message>
        <source>time to first token, and the share of prompt tokens found in the cache</source>
        <translation>Zeit bis zum ersten Token und der Anteil der Prompt-Token, die im Cache liegen</translation>
    </message>
    <message>
        <source>time to the last word, mean</source>
        <translation>Zeit bis zum letzten Wort, Mittel</translation>
    </message>
    <message>
        <source>time to the last word, slowest request</source>
        <translation>Zeit bis zum letzten Wort, langsamste Anfrage</translation>
    </message>
    <message>
        <source>token</source>
        <translation>Token</translation>
    </message>
    <message>
        <source>token budget</source>
        <translation>Token-Budget</translation>
    </message>
    <message>
        <source>token states</source>
        <translation>Zustände von Token</translation>
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
        <source>tokens a second, all together</source>
        <translation>Token je Sekunde, alle zusammen</translation>
    </message>
    <message>
        <source>tokens a second, an edit</source>
        <translation>Token je Sekunde, Überarbeitung</translation>
    </message>
    <message>
        <source>tokens a second, free talk</source>
        <translation>Token je Sekunde, freies Gespräch</translation>
    </message>
    <message>
        <source>tokens a second, noise</source>
        <translation>Token je Sekunde, Rauschen</translation>
    </message>
    <message>
        <source>tokens a step, an edit</source>
        <translation>Token je Schritt, Überarbeitung</translation>
    </message>
    <message>
        <source>tokens a step, free talk</source>
        <translation>Token je Schritt, freies Gespräch</translation>
    </message>
    <message>
        <source>tokens a step, noise</source>
        <translation>Token je Schritt, Rauschen</translation>
    </message>
    <message>
        <source>tokens computed</source>
        <translation>berechnete Token</translation>
    </message>
    <message>
        <source>tokens in sight</source>
        <translation>Token in Sicht</translation>
    </message>
    <message>
        <source>tokens of such a text in 1 GB</source>
        <translation>Token eines solchen Textes in 1 GB</translation>
    </message>
    <message>
        <source>tokens of the largest pass</source>
        <translation>Token des größten Durchgangs</translation>
    </message>
    <message>
        <source>tokens of the text so far</source>
        <translation>Token des bisherigen Textes</translation>
    </message>
    <message>
        <source>tokens per second</source>
        <translation>Token je Sekunde</translation>
    </message>
    <message>
        <source>tokens per second (without it, they fall as the text grows)</source>
        <translation>Token je Sekunde (ohne ihn werden es mit wachsendem Text weniger)</translation>
    </message>
    <message>
        <source>tokens per second of many answers to one prompt</source>
        <translation>Token je Sekunde vieler Antworten auf einen Prompt</translation>
    </message>
    <message>
        <source>tokens per second over all answers against inter-token latency</source>
        <translation>Token je Sekunde über alle Antworten gegen die Latenz zwischen Token</translation>
    </message>
    <message>
        <source>tokens per second, and milliseconds of prefill</source>
        <translation>Token je Sekunde und Millisekunden für den Prompt</translation>
    </message>
    <message>
        <source>tokens per second, and the divergence (KL) of a text&apos;s predictions</source>
        <translation>Token je Sekunde und die Divergenz (KL) der Vorhersagen eines Textes</translation>
    </message>
    <message>
        <source>tokens per second, and the first differing token of a comparison</source>
        <translation>Token je Sekunde und das erste abweichende Token eines Vergleichs</translation>
    </message>
    <message>
        <source>tokens per second, and the share of steps that were captured</source>
        <translation>Token je Sekunde und der Anteil aufgezeichneter Schritte</translation>
    </message>
    <message>
        <source>tokens per second, and whether the steps were captured so</source>
        <translation>Token je Sekunde und ob die Schritte so aufgezeichnet wurden</translation>
    </message>
    <message>
        <source>tokens per step</source>
        <translation>Token je Schritt</translation>
    </message>
    <message>
        <source>tokens per step against the rows checked</source>
        <translation>Token je Schritt gegen die geprüften Zeilen</translation>
    </message>
    <message>
        <source>tokens per step of answers that are held to a form</source>
        <translation>Token je Schritt von Antworten in vorgegebener Form</translation>
    </message>
    <message>
        <source>tokens per step on edits, quotations and code</source>
        <translation>Token je Schritt bei Überarbeitungen, Zitaten und Code</translation>
    </message>
    <message>
        <source>tokens per step where chats are alike</source>
        <translation>Token je Schritt, wo Chats sich ähneln</translation>
    </message>
    <message>
        <source>tokens per step, and the share of draft tokens accepted</source>
        <translation>Token je Schritt und der Anteil angenommener Entwurfs-Token</translation>
    </message>
    <message>
        <source>tokens that a head may read</source>
        <translation>Token, die ein Kopf lesen darf</translation>
    </message>
    <message>
        <source>tokens that fit into the cache, and bytes of keys and values</source>
        <translation>Token, die in den Cache passen, und Bytes der Schlüssel und Werte</translation>
    </message>
    <message>
        <source>tokens that fit into the cache, bits per element, and perplexity against 16 bits</source>
        <translation>Token, die in den Cache passen, Bits je Element und Perplexität gegen 16 Bit</translation>
    </message>
    <message>
        <source>tokens/s</source>
        <translation>Token/s</translation>
    </message>
    <message>
        <source>typical (lossy)</source>
        <translation>typisch (verlustbehaftet)</translation>
    </message>
    <message>
        <source>unused slots</source>
        <translation>ungenutzte Plätze</translation>
    </message>
    <message>
        <source>vLLM</source>
        <translation>vLLM</translation>
    </message>
    <message>
        <source>vLLM has 30.42 requests in a batch on average where Orca, with the longest length reserved for each, has 7.00.</source>
        <translation>vLLM hat im Mittel 30,42 Anfragen im Stapel, Orca mit der jeweils reservierten größten Länge 7,00.</translation>
    </message>
    <message>
        <source>wait for the first word, mean</source>
        <translation>Warten auf das erste Wort, Mittel</translation>
    </message>
    <message>
        <source>wait for the last word, mean</source>
        <translation>Warten auf das letzte Wort, Mittel</translation>
    </message>
    <message>
        <source>warming up</source>
        <translation>aufwärmen</translation>
    </message>
    <message>
        <source>weights</source>
        <translation>Gewichte</translation>
    </message>
    <message>
        <source>weights and KV cache</source>
        <translation>Gewichte und KV-Cache</translation>
    </message>
    <message>
        <source>whole context</source>
        <translation>ganzer Kontext</translation>
    </message>
    <message>
        <source>whole prompts</source>
        <translation>ganze Prompts</translation>
    </message>
    <message>
        <source>window + 4 sinks</source>
        <translation>Fenster + 4 Sinks</translation>
    </message>
    <message>
        <source>window alone</source>
        <translation>nur Fenster</translation>
    </message>
    <message>
        <source>window of 1,024</source>
        <translation>Fenster von 1.024</translation>
    </message>
    <message>
        <source>window recomputed</source>
        <translation>Fenster neu berechnet</translation>
    </message>
    <message>
        <source>with the KV cache</source>
        <translation>mit KV-Cache</translation>
    </message>
    <message>
        <source>without a KV cache</source>
        <translation>ohne KV-Cache</translation>
    </message>
    <message>
        <source>writing the text in batch-invariant arithmetic</source>
        <translation>Text stapelunabhängig schreiben</translation>
    </message>
    <message>
        <source>×</source>
        <translation>×</translation>
    </message>
</context>
</TS>
