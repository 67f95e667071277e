"""Dutch requests about follow-ups."""

from typing import Final

from segue.core.speech.languages.grammar import Grammar, Part, numbers, units

DUTCH: Final = Grammar(
    lists={
        "degree": "alsjeblieft|alstublieft|aub|a\\.u\\.b|svp|gewoon|nu|echt|eens|even|maar|nou|toch|direct|meteen|onmiddellijk|ook|graag|eindelijk|nooit|nooit meer|mij|me|ons|alleen|liever",
        "me": "mij|me|ons|aan mij|naar mij|met mij|bij mij|tegen mij|naar me|aan me|met me",
        "not": "niet|nooit|niks|niets|geen",
        "more": "meer|langer|opnieuw|weer|ooit|nog|steeds|telkens|ooit nog|verder",
        "write": (
            "schrij(?:f|ven)|bericht(?:en)?|app(?:en)?|sms(?:en)?|contacteer|contacteren|stoor|storen|lastigvallen|val"
            "|bel|bellen|mail(?:en)?|e-mail(?:en)?|stuur|sturen|benader|benaderen|ping(?:en)?|spam(?:men)?|zeur|zeuren|praat|praten"
            "|herinner(?:en)?|aanschrijven|opvolgen|neem|nemen|vraag|vragen|hinder(?:en)?|irriteer|irriteren|lastig te vallen|tekst(?:en)?"
        ),
        "to_write": (
            "te (?:schrijven|berichten|appen|sms'?en|contacteren|storen|bellen|mailen|benaderen|pingen|spammen|zeuren|praten"
            "|herinneren|hinderen|vragen|sturen|irriteren)|lastig te vallen|contact op te nemen|op te volgen|aan te schrijven|na te vragen"
        ),
        "messages": (
            "berichte?n?|berichtjes|appjes|meldingen|notificaties|herinneringen|mails?|e-?mails?|sms'?jes|sms"
            "|opvolgingen|follow-?ups?|check-?ins?|contact|pings?|pushberichten"
        ),
        "some": "(?:(?:die|deze|de|dit|dat|jouw|je|uw|al|alle|al die|al deze|verdere|meer|van die|zulke|automatische|dat ge|met) )*",
    },
    leads=r"""
        <degree>|bedankt|dank je|dankjewel|dank u|ok|oke|nee|ja|hee?|hoi|hallo|he|luister|zeg|dus|dan|sorry|goed|want|en|voortaan|in het vervolg|vanaf nu|in de toekomst|genoeg|hou op
        (?:kun|kan|kunt|zou|wil|wilt|kon) (?:je|jij|u)(?: (?:kunnen|willen))?|zou u|wilt u|ik (?:wil|zou willen|wens|verzoek|vraag|eis|heb liever|heb je gevraagd|zei|heb gezegd|zou het fijn vinden|zou graag willen|vind het fijn)(?: (?:dat|als|om|je|u))*
        (?:dat|als|om|of) (?:je|jij|u)?|je (?:moet|mag|kunt|hoeft|zou|moet me)|u (?:moet|mag|kunt|hoeft)|jij|je|u|het is genoeg|laat staan
    """,
    stops=r"""
        (?:stop|hou|houd|kap|schei|ophouden|stoppen|stopt)(?: (?:<degree>|er))*(?: (?:op|uit|mee))?(?: (?:<degree>))* (?:met|om)(?: (?:<me>|<degree>))*(?: (?:<some>)(?:<messages>))?(?: (?:<write>|<to_write>|lastig|contact|appen|zeuren|spammen))*(?: (?:<me>))?(?: te (?:stoppen|vallen|nemen))?
        (?:ik heb )?(?:er )?(?:stop|genoeg|klaar|weg|afgelopen|ophouden|basta)(?: (?:<degree>))* (?:met|van) (?:<some>)(?:<messages>|geapp|gezeur|geschrijf|schrijven|appen)
        (?:(?:<me>|<degree>) )*(?:te stoppen|stopt|ophoudt|op te houden|wilt stoppen|wil stoppen) (?:met|om)(?: (?:<me>|<some>))*(?: ?(?:<messages>|<write>|<to_write>))+
        (?:laat|laten)(?: (?:u|je|<degree>))* (?:mij|me|ons)(?: (?:<degree>))* (?:met rust|gerust|alleen|in vrede)(?: laten)?|(?:mij|me|ons)(?: (?:<degree>))* met rust (?:laten|laat|te laten)
        (?:<write>)(?: (?:u|<degree>|<me>|contact|op|berichten))*(?: (?:<me>|contact))?(?: (?:<degree>))* (?:<not>)(?: (?:<more>))*(?: ?(?:<some>)(?:<messages>))?(?: (?:<more>|lastig|op|meer op|na|aan|met me|met mij))*
        (?:(?:<me>|<degree>) )*(?:<not>)(?: (?:<more>|<me>|<degree>|nodig om|nodig))*(?: (?:<some>)(?:<messages>))?(?: (?:<more>|<me>|op))*(?: (?:schrijven|berichten|appen|contacteren|storen|bellen|mailen|sturen|benaderen|pingen|spammen|zeuren|aanschrijven|<to_write>|lastig gevallen|lastiggevallen|benaderd|gecontacteerd|gestoord|gebeld|opnemen|lastig vallen|lastigvallen))+(?: worden)?
        (?:ik )?(?:(?:<degree>) )*(?:wil|hoef|wens|zou|wilde|heb liever)(?: (?:<degree>|van je|van jou|van u|om|liever))* (?:<not>|geen)(?: (?:<more>))*(?: (?:<some>)(?:<messages>))?(?: (?:<more>|van (?:je|jou|u)|horen|ontvangen|krijgen|hebben|nodig|zien|willen|dat (?:je|jij|u)(?: (?:<me>|nog|weer))*|(?:<write>)|schrijft|appt|belt|stuurt|(?:<messages>)|stoort|lastigvalt|contact opneemt|benadert))+
        (?:(?:<me>|<degree>) )*(?:geen|nooit)(?: (?:<more>|enkel))* ?(?:<some>)(?:<messages>)(?: (?:<more>|<me>|sturen|ontvangen|nodig|van (?:jou|je|u)|aub|opnemen))*
        (?:je|jij|u) hoeft(?: (?:<me>|<degree>))* (?:niet|niks|niets|geen .*)(?: (?:<more>|<me>))* (?:<to_write>|te sturen)|(?:het is )?niet nodig (?:om )?(?:(?:<me>) )?(?:<to_write>)|dat (?:je|jij|u)(?: (?:<me>|<degree>))* niet(?: (?:<more>))* (?:schrijft|appt|belt|stuurt|stoort|lastigvalt|contact opneemt|benadert)
        (?:ga weg|rot op|sodemieter op|donder op|flikker op|hoepel op|opgehoepeld|wegwezen|scheer je weg|hou je (?:mond|kop|bek|snavel)|houd je mond|zwijg|wees stil|kop dicht|kop houden|bek dicht|verdwijn|lazer op|pleur op|oprotten|krijg de .*)
        (?:uitschrijven|schrijf (?:me|mij) uit|afmelden|meld (?:me|mij) af|ik wil me (?:uitschrijven|afmelden)|haal (?:me|mij) van (?:de|je|uw|die) lijst|verwijder (?:me|mij) van (?:de|je|uw) lijst|unsubscribe)
        (?:zet|schakel|doe)(?: (?:<degree>))* (?:de|je|deze|die|alle|uw)(?: \w+)? (?:<messages>)(?: (?:<degree>))* (?:uit|af|stop)|(?:stop|blokkeer|annuleer|deactiveer|staak) (?:de|je|deze|die|alle|uw|al die)(?: \w+)? (?:<messages>)
        (?:antwoord|reageer|schrijf|praat|spreek)(?: (?:me|mij))? (?:alleen|enkel|pas)(?: (?:als|wanneer|indien|op) .*)|(?:alleen|enkel) (?:antwoorden|reageren|schrijven) (?:als|wanneer) ik.*|wacht (?:tot|totdat) ik .*
        (?:je|jij|u) (?:stoort|irriteert|valt)(?: (?:me|mij|ons))?(?: lastig)?|je bent (?:vervelend|irritant|lastig|opdringerig)
    """,
    commands="stop(?: ermee| nou)?|houd? op|kappen|schei uit|ophouden|afmelden|uitschrijven",
    endings=r"""
        <degree>|<more>|bedankt|dank je|ok|oke|voorgoed|voor altijd|de hele tijd|elke dag|iedere dag|constant|steeds|zo vaak|zo|van (?:jou|je|u)|jouw kant|in de toekomst|voortaan|vanaf nu|in het vervolg|begrepen|ja|zelf|uit jezelf|als eerste|ongevraagd|hierover|daarover|over (?:dit|dat)|als het kan|indien mogelijk|tenzij .*|totdat ik .*|tot ik .*|als ik .*niet.*|omdat .*|want .*|lastig|op|meer op|mee|ermee|daarmee|aan|wil je|zul je|man|joh|hiermee|worden|met (?:die|deze|je|al) ?\w* ?\w*
    """,
    loose_stops=r"""
        niet meer(?: \w+){0,4} (?:benaderen|zelf schrijven|uit het niets)(?: \w+){0,2}|alleen (?:reageert|antwoorden|reageren|praten|antwoordt)(?: \w+){0,4} als ik(?: \w+)*|praat alleen(?: \w+){0,3} als ik(?: \w+)*
        geen (?:spontane|verdere)(?: \w+){0,2} (?:<messages>)(?: \w+){0,2}|wacht(?: gewoon)? tot ik(?: \w+)*|(?:berichten|schrijft)(?: \w+){0,4} stop (?:ermee|daar)(?: \w+){0,3}|app me(?: \w+){0,2} niet meer(?: \w+)*
        (?:stop|stoppen|hou|houd|ophouden|kap|kappen)(?: \w+){0,3} (?:met|om)(?: \w+){0,6} (?:<write>|<to_write>|contact opnemen|berichtjes sturen|berichten sturen|<messages>)
        (?:schrijf|stuur|app|bericht|contacteer|benader|bel|mail|spreek|neem|begin|schijf)(?: \w+){0,4} (?:niet|nooit|niks|niets|geen)(?: \w+){0,4} (?:meer|uit jezelf|zomaar|ongevraagd|<messages>|berichte)(?: \w+)*
        (?:niet|nooit|geen|niks)(?: \w+){0,2} meer(?: \w+){0,6} (?:schrijven|te schrijven|berichten|appen|contacteren|te contacteren|benaderd|sturen|stuurt|nodig|<messages>)(?: \w+)*
        geen (?:ongevraagde|automatische)(?: \w+)? (?:<messages>)|geen berichten meer|(?:niet|liever) dat je me(?: \w+){0,6} (?:stuurt|schrijft|appt|benadert)
        laat (?:me|mij|ons)(?: \w+){0,4} met rust|stuur me alleen(?: \w+){0,3} als ik|als je(?: \w+){0,3} (?:stuurt|schrijft)(?: \w+){0,3} doe dat(?: \w+){0,3} niet
    """,
    vetoes=r"""
        hij|zij|hem|haar|mijn (?!telefoon|hoofd)\w+|iemand|mensen|buurman|baas|zeg (?:hem|haar|tegen)|voor mijn
        zegt|zei|vertaal\w*|betekent|lied(?:je)?|gedicht|brief|zin|titel|film|verhaal|corrigeer|herschrijf|formuleer|maak een
        stop niet|niet stoppen|netflix|nieuwsbrief|facebook|iphone|'s nachts|'s avonds|'s ochtends|voor \d\w*|na \d\w*|in het weekend|zo lang\w*|lange|details|foto's|hoe (?:zet|kan|zeg|krijg|schakel)|waarom|noem me|vergeet|in het (?:engels|nederlands|duits)|links?|opsomming\w*|woord|hoofdletter|niet(?: \w+){0,3} (?:te )?stoppen|niet met|moest stoppen|ik kan niet|zalando|amazon|heb(?:t)? (?:geen|nog)
    """,
    laters=r"""
        (?:nu|vandaag|op dit moment|momenteel|even|vanavond)(?: (?:even|liever|echt))* niet|niet (?:nu|vandaag|op dit moment|vanavond)|(?:het )?komt (?:nu |even )?niet uit|geen goed moment|slecht moment|(?:misschien )?(?:later|straks|een andere keer|een ander keertje|een andere dag)
        (?:laten we|zullen we|kunnen we|we kunnen|ik wil(?: liever)?|ik zou(?: liever)?|we)(?: (?:het|hier|dit|er|daar|dat|over|later|verder|liever|beter|maar))* ?(?:praten|verder praten|doorgaan|verdergaan|verder gaan|bespreken|doen|spreken|afspreken|over hebben|hebben|terugkomen|appen|gaan)?
        (?:we (?:spreken|praten|horen|zien|appen)(?: (?:elkaar|verder|er))*|spreek je|ik spreek je|zie je|ik zie je|tot|praat je)(?: (?:later|morgen|straks|gauw|snel|maandag|ziens))?
        (?:schrijf|vraag|app|herinner|contacteer|bel|stuur|probeer|kom|neem)(?: (?:me|mij|het|er|contact|met me|op|dat|een bericht|terug))*(?: (?:opnieuw|weer|nog eens|nog een keer|terug|contact op|op terug))*
        (?:ik )?(?:ben|zit|heb|sta|lig)(?: (?:nu|even|heel|erg|te|op dit moment|momenteel|net|best|nogal|vandaag|super|een beetje|nog|zo))*(?: (?:het|druk|bezig|in (?:een )?(?:vergadering|meeting|gesprek|de (?:les|auto|trein|bus|file)|bespreking)|aan het (?:werk|werken|rijden|eten|slapen|bellen)|op (?:het |mijn )?(?:werk|vakantie|reis)|onderweg|bij de (?:dokter|tandarts|kapper)|niet beschikbaar|weg|in bed))+
        (?:ik )?(?:heb)?(?: (?:nu|even|vandaag|er|op dit moment|helaas|momenteel|daar))* ?geen tijd(?: (?:voor|ervoor|hiervoor))?
        (?:ik )?kan(?: (?:nu|even|vandaag|op dit moment|je|helaas))* niet(?: (?:nu|even|praten|schrijven|antwoorden|reageren|bellen|appen))*|(?:ik )?(?:heb|wil|moet)(?: (?:nu|even|wat|een|eerst|erover|er|tijd|rust|beetje|pauze))* (?:nodig|tijd|rust|pauze|nadenken|over nadenken|slapen|bedenktijd)
        geef (?:me|mij)(?: (?:even|wat|een|nog|tijd|momentje|ruimte|rust|bedenktijd))*
        (?:ik )?(?:laat (?:het )?(?:je|u) (?:het )?weten|kom er(?: (?:later|nog))* op terug|antwoord|reageer|schrijf je|app je|denk erover na|meld me|bel je|zal (?:je|het|er|u)?.*(?:laten weten|antwoorden|schrijven|terugkomen)|doe het|kijk er|kijk)(?: (?:je|u|er|naar|dan|wel|op terug|nog))*
        (?:dat|het|dit) kan wachten
    """,
    goodbyes=r"""
        doei(?: doei)?|dag|tot (?:ziens|morgen|straks|later|de volgende keer|gauw|snel|horens|dan)|welterusten|goedenacht|goede nacht|slaap lekker|fijne (?:dag|avond|dag nog|avond nog)|fijn weekend|prettig weekend|het beste|hou je taai|dat is alles|dat was het|meer heb ik niet nodig|ciao|bye|groetjes
    """,
    resumes=r"""
        (?:van mij )?(?:je )?mag (?:je )?(?:me )?weer(?: \w+){0,3} (?:sturen|schrijven|appen)|stuur me(?: alsjeblieft)? weer(?: \w+){0,4}|(?:ik zou het )?leuk vinden als je me weer(?: \w+){0,2} stuurt
        (?:je|jij|u) (?:mag|kunt|kan|moogt)(?: (?:<me>|nu|gerust|me))* (?:weer|opnieuw|altijd|gerust)(?: (?:<me>|contact))* (?:<write>|berichten sturen|opnemen|contact opnemen)(?: (?:<me>))?
        (?:<write>)(?: (?:<me>|contact|gerust|op))* (?:weer|opnieuw)(?: (?:berichten|op|een bericht|contact op))?
        (?:zet|schakel)(?: (?:<degree>))* (?:de|je|uw) (?:<messages>)(?: (?:weer|terug|opnieuw))* (?:aan|in)|(?:hervat|heractiveer|activeer) (?:de|je|uw) (?:<messages>)|begin(?: (?:weer|opnieuw))* (?:met (?:<write>)|(?:<me> )?(?:<to_write>))
        (?:ik )?(?:wil|zou)(?: (?:graag|weer|toch))* (?:weer )?(?:van (?:je|jou|u) horen|(?:<messages>)(?: (?:ontvangen|krijgen))?)(?: willen)?|schrijf me (?:weer )?in|start
    """,
    reporting=r"""
        zegt|zei|zeg tegen|zeggen|gezegd|schreef|roept|riep|schreeuwt?\w*|antwoordde|fluister\w*|vertaal\w*|betekent|lied(?:je)?|gedicht|brief|zin|titel|film|verhaal|corrigeer|herschrijf|formuleer|quoted
    """,
    conjunctions="maar|en|want|omdat|dus|of|anders|dan|dat",
    parts={
        Part.DAY_AFTER: "overmorgen",
        Part.TOMORROW: "morgen(?:ochtend|avond|middag| vroeg)?|vandaag",
        Part.EVENING: "vanavond|vanmiddag|na (?:het werk|het eten|werk|de lunch)",
        Part.WEEKEND: "(?:dit |het |in het )?weekend|weekeinde",
        Part.NEXT_WEEK: "(?:volgende|komende|deze) week|een paar dagen|enkele dagen",
        Part.NEXT_MONTH: "(?:volgende|komende|deze) maand",
        Part.LATER: "later(?: vandaag)?|straks|nu|even|op dit moment|momenteel|binnenkort|zo|een andere keer|een tijdje|gauw|snel",
    },
    weekdays="maandag dinsdag woensdag donderdag vrijdag zaterdag zondag".split(),
    units=units("min(?:uut|uten|uutje)? uur|uren|uurtje dag(?:en)? we(?:ek|ken) maand(?:en)?"),
    numbers=numbers(
        "1 een half|een, 2 twee, 3 drie|een paar, 4 vier, 5 vijf, 6 zes, 7 zeven, 8 acht, "
        "10 tien, 15 vijftien, 20 twintig, 30 dertig"
    ),
    prepositions="tot|op|om|over|in|voor|binnen|pas|weer|misschien|liever|aanstaande|komende|volgende|de komende",
)
