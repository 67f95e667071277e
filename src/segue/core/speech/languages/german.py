"""German requests about follow-ups; umlauts are folded ("fur") or spelled out ("fuer")."""

from typing import Final

from segue.core.speech.languages.grammar import Grammar, Part, numbers, units

GERMAN: Final = Grammar(
    lists={
        "degree": (
            "bitte|doch|einfach|mal|endlich|jetzt|wirklich|auch|ja|nur|mir|mich|uns|halt|gefalligst"
            "|sofort|ab sofort|also|bloss|niemals|nie|nie wieder|nochmal|noch|bitte auch"
        ),
        "not": "nicht|nie|niemals|keinesfalls|auf keinen fall",
        "more": "mehr|wieder|nochmal|noch einmal|weiter|langer|laenger|erneut|standig|dauernd|immer",
        "me": "mir|mich|uns|bei mir|bei uns|mit mir|an mich",
        "write": (
            "schreibe?n?(?: an)?|kontaktiere?n?|melde(?:n|t)?(?: (?:dich|sie sich|sich))?|nerve?n?"
            "|stoe?re?n?|belae?stige?n?|sprich|sprecht|sprechen|frage?n?|anschreiben|texten?|pinge?n?"
            "|anpingen|nachfragen|nachhaken|hake?|erinnere?n?|behellige?n?|benachrichtige?n?"
            "|zutexten?|spamm?e?n?"
        ),
        "you_write": (
            "schreibst|anschreibst|kontaktierst|meldest|nervst|stoe?rst|belae?stigst|ansprichst"
            "|fragst|nachfragst|nachhakst|textest|pingst|anpingst|erinnerst|benachrichtigst|zutextest"
            "|<write>"
        ),
        "to_write": (
            "(?:an)?zuschreiben|zu schreiben|zu kontaktieren|zu nerven|zu storen|zu stoeren"
            "|zu belastigen|zu belaestigen|zu fragen|nachzufragen|nachzuhaken|zu melden|anzupingen|anzusprechen"
            "|zu erinnern|zu texten|zuzutexten|zu benachrichtigen|zu spammen|zuzuspammen|zu schicken|zu senden"
        ),
        "messages": (
            "nachrichten?|mitteilungen|nachfragen|follow-?ups?|check-?ins?|benachrichtigung(?:en)?"
            "|erinnerungen|texte|mails?|e-mails?|meldungen|push-?nachrichten|anfragen|kontakte?|kontaktaufnahme|sms|pings?"
        ),
        "some": (
            "(?:(?:diese[nrsm]?|deine[nrsm]?|ihre[nrsm]?|die|den|das|weiteren?|automatischen?|standigen"
            "|staendigen|solche|mehr|alle[nr]?|nervigen|ungefragten?|ganzen) )*"
        ),
    },
    leads=r"""
        <degree>|hey(?: \w+)?|hallo(?: \w+)?|ok|okay|ok(?:ay)? \w+|nein|nee|danke|gut|so|hor mal|hoer mal|du|dann|aber|und|sorry|tut mir leid
        (?:kannst|konntest|koenntest|wurdest|wuerdest|willst|magst) du|konnen sie|konnten sie|koennten sie|wurden sie|wuerden sie
        ich (?:mochte|moechte|will|wunsche|bitte|hatte gern|haette gern|sagte|habe gesagt|verlange|fande es gut|wurde mich freuen)
        (?:dass|wenn|ob) (?:du|sie)|dich|sie|darum|es reicht|mir reicht's|mir reicht es|schluss|das|du sollst|sie sollen|du darfst|du brauchst|du musst|sie mussen|sie brauchen|sie brauchen mir|um himmels willen|verdammt|fur immer|in zukunft|kunftig|kuenftig|von jetzt an|von nun an|lieber|besser
    """,
    stops=r"""
        (?:hor|hoer|hort|hoert|horen sie|hoeren sie) (?:(?:<degree>) )*auf (?:(?:<degree>|damit|so) )*(?:(?:mit <some>(?:<messages>))|(?:<me> )?(?:<some>(?:<messages>) )?(?:(?:<more>) )?(?:<to_write>))
        (?:(?:<me>) )?(?:aufhoren|aufhoeren|aufhorst|aufhoerst) (?:(?:<degree>|<me>) )*(?:mit <some>(?:<messages>)|(?:<to_write>))(?: (?:aufhoren|aufhoeren))?
        (?:(?:<me>|<degree>) )*(?:mit <some>(?:<messages>)|(?:<to_write>)) (?:aufhoren|aufhoeren|aufhorst|aufhoerst|horst auf|lassen)
        (?:lass|lasst|lassen sie|lassen) (?:(?:<degree>) )*(?:mich|uns)(?: (?:<degree>))* (?:in ruhe|in frieden|zufrieden)(?: lassen)?
        (?:mich|uns)(?: (?:<degree>))* in (?:ruhe|frieden) (?:lassen|lasst|lasst ihr|zu lassen)
        (?:lass|lassen sie) (?:(?:<degree>) )*(?:das|es)(?: (?:<degree>))*(?: (?:mit <some>(?:<messages>)|sein|bleiben))+
        (?:<write>)(?: (?:du|sie|<degree>|<me>))*(?: (?:<me>))(?: (?:<degree>|jetzt|hier))* (?:<not>|nichts|keine? <some>(?:<messages>))(?: (?:<more>))*
        (?:<write>)(?: (?:du|sie|<degree>|<me>|dich|sich))* (?:<not>|nichts|keine? <some>(?:<messages>))(?: (?:<more>))+(?: (?:an|nach|von dir|bei <me>))?
        (?:(?:<me>|<degree>|dich|sich) )*(?:<not>|nichts|nicht mehr)(?: (?:<more>|<me>|<degree>|bei|von dir|selbst|zuerst|von selbst|unaufgefordert))* (?:<write>|angeschrieben|kontaktiert|gestort|gestoert|genervt|belastigt|belaestigt|benachrichtigt|geschrieben|<to_write>|dass (?:du|sie)(?: (?:<me>|dich|sich|noch|weiter))* (?:<you_write>))(?: werden)?
        (?:(?:<me>|<degree>) )*keine? <some>(?:<messages>)(?: (?:<more>|<me>|von dir|von ihnen|bekommen|erhalten|schicken|senden|schreiben|haben|kriegen|wollen|empfangen|lesen|bitte))*
        (?:schick|schicke|schicken sie|sende|senden sie|send)(?: (?:<me>|<degree>))* (?:keine?|nichts)(?: (?:<more>))? ?<some>(?:<messages>)?(?: (?:<more>))*
        (?:ich )?(?:(?:<me>|<degree>) )*(?:will|mochte|moechte|brauche|wunsche)(?: (?:<degree>|ich))* (?:nichts|keine?)(?: (?:<more>))* (?:von (?:dir|ihnen) (?:horen|hoeren)|<some>(?:<messages>))(?: (?:<more>|von dir|horen|hoeren|bekommen|erhalten|haben|kriegen))*
        (?:nichts|nie)(?: (?:<more>))* von (?:dir|ihnen)(?: (?:<more>))* (?:horen|hoeren|lesen)
        (?:schluss|genug|aus|ende|stopp|stop) (?:jetzt )?mit <some>(?:<messages>|schreiben|nerven|dem (?:schreiben|nerven|texten))
        (?:stopp|stop|beende|beenden sie|unterlass|unterlasse|unterlassen sie|deaktiviere|deaktivieren sie|schalte|schalten sie|stell|stelle|stellen sie) (?:(?:<degree>) )*<some>(?:<messages>)(?: (?:<degree>))*(?: (?:ab|aus|ein))?
        (?:melde dich|melden sie sich|schreib|antworte|antworten sie|sprich|rede)(?: (?:mir|<degree>))* nur(?: noch)?(?: (?:wenn|falls|auf|dann|nach).*)?
        (?:hau|verschwinde|verzieh|verpiss|zieh)(?: (?:dich|ab|leine|endlich|einfach))*|geh(?: (?:weg|mir nicht auf die nerven|mir auf den geist))|halt (?:(?:<degree>|dein|deinen|die) )*(?:mund|maul|klappe|fresse|schnauze)|sei (?:(?:<degree>) )*(?:still|ruhig|leise)|gib (?:(?:<degree>) )*ruhe|ruhe(?: jetzt)?
        (?:du |sie )(?:nervst|storst|stoerst|belastigst|belaestigst|storen|stoeren)(?: (?:mich|nur|echt|total|langsam|wirklich))*
        (?:trag|trage|melde|nimm)(?: (?:mich|<degree>))+ (?:aus|ab|von der liste|aus der liste|aus dem verteiler|von deiner liste)(?: aus| ab)?
        (?:kein|keinen) (?:weiteren )?kontakt(?: (?:<more>))?
    """,
    commands="(?:stopp|stop|abmelden|abbestellen|austragen|unsubscribe|aufhoe?ren|schluss|hoe?r auf)(?: (?:damit|alles))?",
    endings=r"""
        <degree>|<more>|mehr|bitte|danke|ok|okay|jetzt|in zukunft|kunftig|kuenftig|ab (?:jetzt|sofort|heute)|von (?:jetzt|nun) an|fur immer|fuer immer|uberhaupt|ueberhaupt|klar|verstanden|ja|so oft|die ganze zeit|jeden tag|von (?:dir|ihnen)|selbst|von selbst|von dir aus|zuerst|unaufgefordert|ungefragt|an|bei mir|hier|damit|werden|wurdest|wuerdest|wurden|wurde|und zwar sofort|es sei denn.*|ausser .*|bis ich .*|bevor ich .*|wenn ich .*nicht.*|weil .*|denn .*|du \w+|bis auf weiteres|haben|mochte|moechte|will|lasst|lassen|lasst|zu lassen|horst|hoerst|schreibst|meldest|kontaktierst|nervst|storst|anschreibst|musst|brauchst|sollst|auf
    """,
    loose_stops=r"""
        (?:unterlassen|unterlass|verschone|verschon)(?: \w+){0,6} (?:an(?:zu)?schreiben|anzuschreiben|<messages>|zu schreiben)
        (?:keine|kein)(?: \w+){0,2} (?:kontaktaufnahme|<messages>)(?: \w+){0,2} (?:mehr|ihrerseits|ohne dass ich)
        (?:nur|erst) (?:antworten|reagieren|antworte)(?: \w+){0,3} (?:nicht|wenn ich)|hoe?r auf mich vollzu\w+|schluss mit(?: \w+){0,3} (?:<messages>)
        (?:nachrichten|meldungen)(?: \w+){0,4} (?:sein lassen|lass das(?: bitte)?)|warte(?: \w+){0,3} bis ich(?: \w+){0,2} schreibe
        (?:hoe?r|hoe?ren)(?: \w+){0,3} auf(?: \w+){0,7} (?:<to_write>|an(?:zu)?schreiben|zu senden|zu schicken|damit)
        aufhoe?ren?(?: \w+){0,7} (?:<to_write>|zu senden|zu schicken)
        (?:schreibe?|meld|melde|kontaktiere?|nerve?|stoe?re?|textet?|sprich|ping)(?: \w+){0,4} (?:nicht|nich|nciht|nie|nix|nichts|keine)(?: \w+){0,4} (?:mehr|wieder|einfach so|von (?:allein|alleine|dir aus|selbst)|unaufgefordert|ungefragt)
        (?:nicht|nie|nix|nichts|keine)(?: \w+){0,3} mehr(?: \w+){0,5} (?:schreiben|anschreiben|anschreibst|schreibst|melden|meldest|kontaktieren|von dir hoe?ren|nachrichten|<messages>)
        (?:keine?|nicht)(?: \w+){0,3} (?:unaufgeforderten?|ungefragten?|automatischen)(?: \w+){0,2} (?:<messages>)
        (?:lass|lassen sie)(?: \w+){0,6} (?:mir(?: \w+){0,3} zu schreiben|an(?:zu)?schreiben|anzuschreiben|mich anzuschreiben)
        (?:lass|lasst|lassen sie)(?: \w+){0,2} (?:mich|uns)(?: \w+){0,4} in (?:ruhe|frieden)
        (?:stell|stelle|stellen)(?: \w+){0,5} (?:<messages>|das)(?: \w+){0,4} ein
        (?:nicht|nie)(?: \w+)* dass du(?: \w+){0,5} (?:anschreibst|schreibst|meldest|kontaktierst)
        wenn du(?: \w+){0,4} (?:schreibst|anschreibst)(?: \w+){0,4} (?:bitte )?lass(?: das| es)
    """,
    vetoes=r"""
        in stichpunkten|per (?:mail|post)|(?:der|die) (?!nachrichten)\w+ (?:will|mochte|hat|schreibt)
        er|ihn|ihm|mein(?:e|em|en|er)? \w+|leute|jemand|chef|nachbar\w*|exfreund\w*|kollege\w*
        sag(?:t|te|en)?|gesagt hat|ue?bersetze?|heisst|bedeutet|lied|gedicht|brief|text|satz|titel|film|geschichte|formuliere?|schreib (?:mir )?(?:ein|eine|einen) \w+|nenn\w*|zu nennen|rufen
        (?:nicht|nie|niemals) (?:auf(?:hoe?ren)?|allein)|hoe?r nicht|netflix|newsletter|whatsapp|facebook|iphone|nachts|abends|morgens|vor \d\w*|nach \d\w*|am wochenende|so (?:foe?rmlich|lange?)|lange|bilder|fotos|warum|wieso|wie (?:schalte|kann|sage|kriege|bringe)|hat mir|haben mir|auf (?:\w+isch|deutsch)|absatz|wort|gross|klein|links?|listen?|stichpunkte|zalando|amazon|nicht in ruhe
    """,
    laters=r"""
        (?:jetzt|heute|gerade|momentan|im moment|grad) (?:gerade )?(?:nicht|lieber nicht|keine zeit|schlecht|leider nicht)|nicht (?:jetzt|heute|gerade|im moment)|passt (?:mir )?(?:jetzt|gerade|heute|grad) nicht|(?:es )?passt (?:jetzt |gerade |mir )*nicht
        (?:vielleicht |lieber |)(?:spater|spaeter|ein andermal|ein anderes mal|ein ander mal|morgen)
        (?:lass|lasst|konnen wir|koennen wir|wollen wir|konnten wir|wir konnen|wir koennen|wir sollten|ich mochte|ich moechte)(?: (?:uns|bitte|das|doch|lieber|mal|daruber|darueber|dann|davon))* (?:weiter)?(?:reden|sprechen|schreiben|machen|weitermachen|fortsetzen|besprechen|klaren|klaeren|darauf zuruckkommen)
        (?:(?:reden|sprechen|schreiben|machen) wir(?: (?:das|weiter|daruber|darueber|doch|lieber))*|bis|wir (?:reden|sprechen|schreiben|horen|hoeren|lesen)(?: uns)?|man (?:hort|sieht|schreibt) sich)
        (?:schreib|schreibe|frag|frage|kontaktier|kontaktiere|erinner|erinnere|melde dich|melden sie sich|probier|probiere|versuch|versuche|schreiben sie|fragen sie)(?: (?:mir|mich|bitte|bei mir|es|doch|mal|lieber|wieder|nochmal|noch mal|noch einmal))*
        (?:ich )?(?:bin|stecke|sitze|fahre|schlafe|arbeite|hab|habe)(?: (?:gerade|grad|jetzt|im moment|momentan|leider|noch|sehr|total|echt|ziemlich|heute|zu|so|zur zeit))*(?: (?:beschaftigt|beschaeftigt|in einer besprechung|im meeting|in einem meeting|in der arbeit|auf der arbeit|bei der arbeit|unterwegs|im unterricht|im kino|beim arzt|am steuer|im auto|keine zeit|viel zu tun|zu tun|nicht da|nicht erreichbar|im urlaub|im stress|verhindert|am telefon|beim essen))
        (?:ich )?(?:hab|habe)(?: (?:gerade|grad|jetzt|im moment|momentan|leider|heute|dafur|dafuer|zur zeit))* keine zeit|keine zeit
        (?:ich )?kann(?: (?:gerade|grad|jetzt|im moment|momentan|leider|heute|dir))* nicht(?: (?:reden|sprechen|schreiben|antworten|telefonieren|jetzt|so gut))+
        (?:ich )?(?:brauche|mochte|moechte)(?: (?:gerade|jetzt|erst|mal|noch|etwas|ein bisschen|ein wenig|eine|meine))* (?:zeit|bedenkzeit|pause|ruhe)
        gib mir(?: (?:bitte|noch|etwas|ein wenig|ein bisschen))*(?: zeit| bedenkzeit)?
        (?:ich )?(?:melde mich|komme darauf zuruck|sage dir bescheid|sag dir bescheid|antworte|schreibe|schreib|uberlege es mir|uberlege mir das|denke daruber nach|mache das|mach das|schaue|schau)(?: (?:dir|dann|bei dir|wieder|mich|darauf|zuruck|es mir|nochmal|an|bescheid))*
        das (?:hat zeit|muss warten|kann warten|kann(?: auch)? noch warten)
    """,
    goodbyes=r"""
        tschuss|tschuess|tschau|ciao|bye|servus|auf wiedersehen|wiedersehen|auf wiederhoren|bis (?:dann|bald|morgen|spater|spaeter|zum nachsten mal|nachste woche)|gute nacht|mach'?s gut|machs gut|leb wohl|schonen (?:tag|abend|feierabend)|schoenen (?:tag|abend)|schones wochenende|man sieht sich|pfiat di|ade|das war'?s|das ist alles|danke das reicht|mehr brauche ich nicht
    """,
    resumes=r"""
        (?:von mir aus )?(?:du )?(?:kannst|darfst)(?: \w+){0,3} wieder(?: \w+){0,3} (?:schreiben|anschreiben|melden)|(?:bitte )?schreib mir wieder(?: \w+){0,3}|dass du(?: \w+){0,2} wieder(?: \w+){0,3} (?:meldest|schreibst)
        (?:du|sie) (?:darfst|kannst|durfen|duerfen|konnen|koennen)(?: (?:mir|mich|dich|sich|jetzt|gern|gerne|ruhig|bei mir|uns))* (?:wieder|jederzeit|gern wieder|ab jetzt wieder|von dir aus)(?: (?:mir|mich|dich|bei mir|an|von dir aus|gern|gerne))* (?:<write>)
        (?:<write>)(?: (?:<me>|dich|sich|sie|bitte|gern|gerne|ruhig|doch|jetzt))* (?:wieder|jederzeit)(?: (?:bei mir|an))?
        (?:ich )?(?:mochte|moechte|will|wurde gern|wuerde gern)(?: (?:gern|gerne|doch|jetzt))* wieder (?:von dir (?:horen|hoeren|lesen)|<some>(?:<messages>)(?: (?:bekommen|erhalten|haben))?|angeschrieben werden)
        (?:schalte|schalt|stell|stelle|aktiviere|schalten sie)(?: (?:bitte|wieder))* <some>(?:<messages>)(?: (?:bitte|wieder|ein|an))+
        aktiviere <some>(?:<messages>)|fang(?: (?:bitte|wieder))* an,? ?(?:(?:<me>) )?(?:wieder )?(?:<to_write>)|start
    """,
    reporting=r"""
        sag(?:t|te|en)?|sagst|sagte|gesagt|meint(?:e)?|schrieb|schreit|schrie|rief|ruft|antwortet(?:e)?|ubersetze?|uebersetze?|heisst|bedeutet|lied|gedicht|brief|satz|titel|film|geschichte|formuliere?|korrigiere?
    """,
    conjunctions="aber|und|denn|weil|oder|also|sonst|trotzdem|deshalb|dass",
    parts={
        Part.DAY_AFTER: "ubermorgen|uebermorgen",
        Part.TOMORROW: "morgen(?: fruh| frueh| abend| nachmittag| vormittag)?|heute",
        Part.EVENING: "heute abend|heute nachmittag|am abend|abends|am nachmittag|nach (?:der arbeit|feierabend|dem essen)",
        Part.WEEKEND: "(?:am |ums |dieses |nachstes |naechstes )?wochenende",
        Part.NEXT_WEEK: "(?:nachste|naechste|kommende|diese) woche|(?:ein )?paar tage|einige tage",
        Part.NEXT_MONTH: "(?:nachsten|naechsten|kommenden|diesen) monat",
        Part.LATER: "spater|spaeter|nachher|jetzt|gerade|grad|im moment|momentan|ein andermal|ein anderes mal|dann|bald|kurz|zur zeit|wann anders",
    },
    weekdays="montag dienstag mittwoch donnerstag freitag samstag|sonnabend sonntag".split(),
    units=units("min(?:uten?)? stunden?|std tage?n? wochen? monate?n?"),
    numbers=numbers(
        "1 eine halbe|eine|einer|einen|ein|einem, 2 zwei, 3 drei|ein paar, 4 vier, 5 funf|fuenf, "
        "6 sechs, 7 sieben, 8 acht, 10 zehn, 20 zwanzig, 30 dreissig"
    ),
    prepositions="bis|am|um|in|fur|fuer|ab|vor|erst|wieder|dann|vielleicht|zum|lieber|den|die|der|nachsten|naechsten|kommenden",
)
