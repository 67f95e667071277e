"""Italian requests about follow-ups."""

from typing import Final

from segue.core.speech.languages.grammar import Grammar, Part, numbers, units

ITALIAN: Final = Grammar(
    lists={
        "degree": "per favore|per piacere|per cortesia|adesso|ora|davvero|solo|subito|semplicemente|pure|mai|piu|mai piu|una volta per tutte|gentilmente|anche|proprio|ti prego|la prego",
        "me": "mi|ci",
        "write": (
            "scriv(?:ere|ermi|erci|imi|iate|a|er|i)|contatt(?:are|armi|arci|arti|i|armi|ar)|disturb(?:are|armi|arci|ar)"
            "|mand(?:are|armi|i|ar)|invi(?:are|armi|ar|i)|parl(?:are|armi|i|ar)|infastid(?:ire|irmi)|assill(?:are|armi)"
            "|stress(?:are|armi)|tormen(?:tare|tarmi)|chiam(?:are|armi|i|ar)|romp(?:ere|ermi)|tedi(?:are|armi)"
            "|sollecit(?:are|armi)|ricord(?:are|armelo|armi)|notific(?:are|armi)|avvis(?:are|armi)|messaggi(?:are|armi)"
            "|perseguit(?:are|armi)|insist(?:ere|a)|cerc(?:are|armi|hi)|ricontatt(?:are|armi|i)|importun(?:are|armi)|spamm(?:are|armi)|scocci(?:are|armi)|chied(?:ere|ermi)"
        ),
        "messages": (
            "messagg(?:i|io|ini)|notific(?:he|a)|promemoria|avvis[io]|sollecit[io]|e-?mail|mail|sms|allert|follow-?up|contatt[io]|comunicazioni"
        ),
        "some": "(?:(?:di|con|i|gli|le|la|il|tuoi|tue|suoi|questi|queste|quei|tutti|tutte|altri|altre|piu|nessun|altro|automatici|dei|delle|degli|coi|questo) )*",
    },
    leads=r"""
        <degree>|grazie|ok|okay|va bene|bene|si|senti|ascolta|senta|ciao|ehi|hey|allora|ma|e|scusa|scusi|guarda|d'ora in poi|da ora in poi|in futuro
        (?:puoi|potresti|vuoi|vorresti|puo|potrebbe|ti dispiace|ti dispiacerebbe|riesci a)|ti (?:chiedo|prego|ho detto)(?: di| che)?|le (?:chiedo|ho detto)(?: di)?
        (?:io )?(?:voglio|vorrei|preferisco|preferirei|desidero|gradirei|pretendo|spero|mi piacerebbe)(?: che (?:tu)?)?|sarebbe meglio (?:che|se)(?: tu)?|fammi il (?:piacere|favore) di|dovresti|devi|deve|e ora di|cerca di|apprezzerei se
    """,
    stops=r"""
        (?:la )?(?:smetti|smettila|smetta|smettere|smettetela|smettessi|smetterla|piantala|finiscila|basta|cessa|evita|evitare|evitassi|cessi|falla finita|fatela finita|stop)(?: (?:<degree>))*(?: (?:di|con|a))?(?: (?:<me>))? (?:<write>)(?: (?:<some>)(?:<messages>))?
        (?:basta|stop|smettila|smetti|piantala|finiscila|sono (?:stufo|stufa) (?:di|dei)|stufo|ne ho abbastanza|fine|niente|nessun|nessuna|non piu|mai piu|zero)(?: (?:<degree>))*(?: (?:di|con|dei|coi|delle|ai))? (?:<some>)(?:<messages>)
        non (?:(?:<me>|<degree>|devi|dovete|deve|c'e bisogno di|c'e bisogno che|serve|serve che tu|e necessario|occorre|voglio che tu|voglio che|vorrei che tu|osare|osare piu|provare a|stare a|continuare a|devi piu|hai bisogno di|importa) )*(?:<write>)(?: (?:<degree>|<some>(?:<messages>)|niente))*
        (?:che )?(?:tu )?non (?:(?:<me>) )?(?:(?:<degree>) )*(?:scriva|scrivessi|contattassi|disturbassi|contatti|mandi|mandassi|cerchi|disturbi piu)(?: piu)?(?: (?:<some>)(?:<messages>))?
        non (?:(?:<degree>) )*(?:voglio|desidero|vorrei|ho bisogno|ho chiesto|mi interessano|gradisco|intendo)(?: (?:<degree>|ricevere|avere|vedere|essere|sentire|leggere|di|che tu mi|che mi|sapere))*(?: (?:<some>)(?:<messages>)| (?:da te|di te)| niente da te| contattat[oa]| disturbat[oa]| (?:<write>)| sentirti| sentirla| scriva)+
        (?:non )?(?:occorre|serve|c'e bisogno|bisogna|e inutile|inutile)(?: (?:piu|che tu|che|di))*(?: (?:<me>))? (?:<write>|scriva)
        (?:lascia|lasci|lasciate|lasciar)(?:mi|ci)(?: (?:<degree>))* (?:in pace|stare|perdere|tranquill[oa]|sol[oa]|respirare|vivere)
        (?:mi |ci )(?:lasci|lasciassi|lasciate|lasciare)(?: (?:<degree>))* (?:in pace|stare|perdere|tranquill[oa]|sol[oa])
        (?:vattene|vai via|va via|sparisci|sta zitt[oa]|stai zitt[oa]|zitt[oa]|taci|silenzio|chiudi il becco|chiudi la bocca|levati(?: di torno| dai piedi)?|dimenticami|stammi lontan[oa]|fuori dai piedi|va al diavolo|non rompere(?: .*)?|non rompermi(?: .*)?)
        (?:cancellami(?: dalla (?:tua )?lista)?|disiscrivimi|disiscriviti|toglimi dalla lista|rimuovimi dalla (?:tua )?lista|disiscrivermi|voglio (?:cancellarmi|disiscrivermi)|annulla l'iscrizione|cancella la mia iscrizione|disiscrizione)
        (?:disattiva|disattivare|spegni|spegnere|silenzia|disabilita|blocca|ferma|sospendi|elimina|togli|interrompi|interrompere)(?:re)? (?:(?:le|i|gli|tutti i|tutte le|questi|queste|tuoi|tue|i tuoi|le tue) )+(?:<messages>)
        (?:rispondi(?:mi)?|scrivi(?:mi)?|parla(?:mi)?|contattami)(?: (?:solo|soltanto|unicamente)) (?:quando|se) .*|solo quando (?:ti )?scrivo.*|aspetta che (?:ti )?(?:scriva|sia io|chieda|contatti).*
        (?:mi )?stai (?:disturbando|infastidendo|stressando|assillando|rompendo|tormentando|scocciando)(?:mi)?|(?:mi )?(?:disturbi|infastidisci|stressi|assilli)|mi hai (?:stufat[oa]|stancat[oa]|rotto.*)|sei (?:pesante|fastidios[oa]|assillante)
    """,
    commands="stop|basta|smettila|smetti|piantala|fermati|finiscila",
    endings=r"""
        <degree>|piu|mai|grazie|ok|di nuovo|ancora|per sempre|tutto il tempo|sempre|continuamente|in continuazione|ogni (?:giorno|ora)|tutti i giorni|cosi|da te|da parte tua|tuoi|in futuro|d'ora in poi|immediatamente|capito|chiaro|tu|per prim[oa]|di tua iniziativa|su (?:questo|cio)|a riguardo|se possibile|se puoi|a meno che.*|finche (?:non )?.*|se non .*|prima che .*|perche .*|a me|con (?:questi|i tuoi|questa) ?\w*|niente|va bene|accidenti|assolutamente|affatto
    """,
    loose_stops=r"""
        (?:la pianti|piantala|smettetela|cessare|smettere)(?: \w+){0,4} (?:di scrivermi|di mandarmel\w+|comunicazion\w+|<messages>)(?: \w+){0,3}|non mandarmene piu|non farlo piu|non farti piu sentire(?: \w+)*
        non scrivermi piu(?: \w+)*|non essere piu contattat[oa](?: \w+)*|(?:scrivimi|rispond\w+) (?:solo|soltanto) (?:se|quando) ti scrivo(?: \w+)*|non c'e(?: piu)? bisogno che mi scriv\w+(?: \w+)*
        (?:smetti|smettila|smetta|smettere|smettessi|piantala|finiscila|evita)(?: \w+){0,2} di(?: \w+){0,2} (?:<write>|mandarmi|inviarmi|tartassarmi)(?: \w+){0,4}
        (?:non|nn) (?:\w+ ){0,3}(?:scrivermi|contattarmi|mandarmi|inviarmi|disturbarmi|cercarmi)(?: \w+){0,2} (?:piu|mai|<messages>|senza)(?: \w+)*
        (?:non|nn) mi (?:scriva|contatti|contattasse|scrivessi|mandi|disturbi) (?:piu|mai|senza)(?: \w+)*
        (?:non|nn) (?:voglio|desidero|vorrei)(?: \w+){0,5} (?:<messages>|contattat[oa]|mi scriv(?:a|i)|ke mi scrivi)(?: piu)?
        (?:di|desidero) non (?:scrivermi|contattarmi|essere)(?: \w+){0,2} (?:piu|contattat[oa])(?: \w+)*|tu non scrivermi|non prendere l'iniziativa
        (?:disattiva|spegni|blocca)(?: \w+){0,3} (?:<messages>)(?: \w+){0,2}(?: che mi mandi| spontanei| automatici)(?: che mi mandi)?
        (?:mi scrivi|i tuoi messaggi)(?: \w+){0,4} (?:smettila|basta|smetti)
    """,
    vetoes=r"""
        lui|lei (?:non|mi|ha)|loro|il mio (?!telefono|cellulare)\w+|la mia \w+|mio \w+|mia \w+|qualcuno|la gente|capo|vicin[oa]|digli|dille
        dice|disse|ha detto|traduc\w*|significa|canzone|poesia|lettera|frase|titolo|film|storia|racconto|correggi|riformula|scrivimi (?:un|una) \w+
        non smettere|netflix|newsletter|facebook|whatsapp|iphone|di notte|la sera|al mattino|prima delle \w+|dopo le \w+|nel weekend|troppo lung\w+|dettagli|come (?:faccio|si dice|disattivo|blocco)|perche non|chiamarmi|dimenticare|in (?:inglese|italiano|francese|tedesco)|elench\w+|paragraf\w+|link|che tu smett\w+|collega|zalando|amazon
    """,
    laters=r"""
        (?:adesso|ora|oggi|al momento|per ora|stasera)(?: proprio)? no|non (?:adesso|ora|oggi|al momento|e (?:il|un buon) momento|stasera|e il momento giusto|in questo momento)|(?:e un )?brutto momento|piu tardi|dopo|un'altra volta|un altro giorno|magari (?:dopo|piu tardi|un'altra volta)|forse (?:dopo|piu tardi)|ne parliamo (?:dopo|piu tardi)
        (?:ne (?:parliamo|riparliamo|discutiamo)|parliamone|riparliamone|parliamo|continuiamo|riprendiamo|facciamo(?:lo)?|ci (?:sentiamo|vediamo|scriviamo|risentiamo)|possiamo (?:parlarne|continuare|farlo|riprendere|sentirci|parlare)|preferisco (?:parlarne|farlo|continuare)|rimandiamo(?: a)?|vediamo(?:lo)?)(?: (?:di questo|questo|cio|di cio|a))*
        a(?: (?:domani|dopo|presto|piu tardi|lunedi))?
        (?:scrivimi|chiedimi(?:lo)?|ricordamelo|ricordami|contattami|ricontattami|risentiamoci|riprova|cercami|chiedi(?:lo)?|mi scriva|mi contatti)(?: (?:di nuovo|ancora|questo))*
        (?:io )?sono(?: (?:molto|un po'|troppo|adesso|ora|abbastanza|davvero|ancora|super|tanto))* (?:occupat[oa]|impegnat[oa]|in (?:riunione|macchina|treno|ufficio|viaggio|vacanza|chiamata|classe|aereo|ferie)|al lavoro|alla guida|a lezione|a cena|a pranzo|a tavola|al (?:telefono|cinema)|dal (?:medico|dentista)|di fretta|fuori)|(?:sto )(?:guidando|lavorando|dormendo|mangiando|studiando)
        (?:io )?(?:non ho|senza)(?: (?:molto|ora|adesso|oggi|proprio))* tempo|non ho tempo
        (?:io )?(?:adesso |ora )?non posso(?: (?:parlare|rispondere|scrivere|chattare|risponderti|parlarti))?|(?:io )?(?:ho bisogno di|mi serve|voglio) (?:un po' di |una |un )?(?:tempo|pausa|pensarci|riposo|spazio|dormire|riposare)
        (?:dammi|mi dia)(?: (?:un (?:momento|attimo|minuto|secondo)|tempo|un po' di tempo|spazio))?
        (?:io )?(?:ti|le|ci|lo|te lo|mi)? ?(?:rispondo|rispondero|scrivo|scrivero|faccio sapere|faro sapere|penso|pensero|dico|diro|richiamo|faccio vivo|faccio viva|faccio|faro)(?: (?:sapere|su))?
        (?:questo |cio )?puo aspettare
    """,
    goodbyes=r"""
        ciao(?: ciao)?|arrivederci|arrivederla|addio|a (?:presto|domani|dopo|piu tardi|risentirci)|ci (?:vediamo|sentiamo)|buona (?:notte|serata|giornata)|buonanotte|buon (?:weekend|fine settimana)|stammi bene|alla prossima|e tutto|questo e tutto|nient'?altro|basta cosi grazie
    """,
    resumes=r"""
        (?:alla fine )?(?:vorrei|voglio) che (?:tu )?mi (?:scrivessi|scriva)(?: di nuovo| ancora)|puo di nuovo (?:<write>)(?: <some>(?:<messages>))?
        (?:ora )?(?:puoi|puo) (?:di nuovo |ricominciare a |tornare a |riprendere a )?(?:<write>)(?: (?:di nuovo|ancora|quando vuoi|quando.*))*
        (?:scrivimi|contattami|ricomincia a (?:<write>)|torna a (?:<write>)|riprendi a (?:<write>)) ?(?:di nuovo|ancora|quando vuoi|pure)?
        (?:attiva|riattiva|accendi|riprendi)(?: di nuovo)? (?:le|i|gli|i tuoi|le tue) (?:<messages>)
        (?:io )?(?:voglio|vorrei|mi piacerebbe) (?:di nuovo )?(?:risentirti|sentirti|avere tue notizie|ricevere (?:i tuoi )?(?:<messages>)|che (?:tu )?mi (?:scriva|scrivessi))(?: (?:di nuovo|ancora))?|start
    """,
    reporting=r"""
        dice|disse|diceva|detto|dire|digli|dille|dica|url\w*|grid\w*|scrisse|rispos\w*|sussurr\w*|traduc\w*|significa|canzone|poesia|lettera|frase|titolo|film|storia|racconto|correggi|riformula|quoted
    """,
    conjunctions="ma|e|perche|quindi|o|allora|pero|poi|anche se",
    parts={
        Part.DAY_AFTER: "dopodomani",
        Part.TOMORROW: "domani(?: mattina| sera| pomeriggio)?|oggi",
        Part.EVENING: "stasera|questa sera|oggi pomeriggio|nel pomeriggio|dopo (?:il lavoro|pranzo|cena)",
        Part.WEEKEND: "(?:questo |nel |il )?(?:fine settimana|weekend|week-end)",
        Part.NEXT_WEEK: "(?:la )?(?:settimana prossima|prossima settimana)|questa settimana|qualche giorno",
        Part.NEXT_MONTH: "(?:il )?(?:mese prossimo|prossimo mese)|questo mese",
        Part.LATER: "piu tardi|dopo|adesso|ora|al momento|per ora|in questo momento|presto|tra poco|fra poco|un'altra volta|un po'",
    },
    weekdays="lunedi martedi mercoledi giovedi venerdi sabato domenica".split(),
    units=units("min(?:ut[oi])? or[ae]|h giorn[oi] settiman[ae] mes[ei]"),
    numbers=numbers(
        "1 mezz'|un'|mezza|una|un, 2 due|un paio di, 3 tre, 4 quattro, 5 cinque, 6 sei, 7 sette, "
        "8 otto, 10 dieci, 15 quindici, 20 venti, 30 trenta"
    ),
    prepositions="fino a|fino al|entro|tra|fra|per|di|prima di|prima del|a|il|da|prossimo|magari|piuttosto|almeno|le prossime",
)
