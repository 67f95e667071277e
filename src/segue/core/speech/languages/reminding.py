"""How an agent promises a reminder, how a user asks for one, and how both name its time.

Patterns are in lower case without accents, one per line. Numbers, units and weekdays come from the
grammar of the language.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from segue.core.speech.languages.dutch import DUTCH
from segue.core.speech.languages.english import ENGLISH
from segue.core.speech.languages.french import FRENCH
from segue.core.speech.languages.german import GERMAN
from segue.core.speech.languages.grammar import Grammar
from segue.core.speech.languages.italian import ITALIAN
from segue.core.speech.languages.portuguese import PORTUGUESE
from segue.core.speech.languages.spanish import SPANISH

# Numbers of the grammars that are rough: good enough to wait, not to be on time.
_ROUGH: Final = re.compile(r"hal|demi|medi|mezz|meia|few|couple|paar|par de|paio|the next")
_UNITS: Final = ("minutes", "hours", "days", "weeks")


@dataclass(frozen=True)
class Reminding:
    """The phrases of one language. A promise with one of `others` in its sentence is none."""

    grammar: Grammar
    promises: str
    others: str
    asks: str
    # Before a duration, and before a time of day; between its hour and minute, and after it.
    within: str
    at: str
    separator: str
    suffix: str
    morning: str
    later: str
    # Today, tomorrow, the day after.
    days: tuple[str, str, str]
    # Makes a time unclear: repetition, ranges, dates, fractions.
    unclear: str

    @cached_property
    def promise(self) -> re.Pattern[str]:
        return words(self.promises)

    @cached_property
    def other(self) -> re.Pattern[str]:
        return words(self.others)

    @cached_property
    def ask(self) -> re.Pattern[str]:
        return words(self.asks)

    @cached_property
    def unclear_time(self) -> re.Pattern[str]:
        return words(f"{self.unclear}\n{_DATES}")

    @cached_property
    def numbers(self) -> dict[str, int]:
        return {name: n for name, n in self.grammar.numbers.items() if not _ROUGH.search(name)}

    @cached_property
    def duration(self) -> re.Pattern[str]:
        """A duration, with `within` if it is the time from now on."""
        units = "|".join(f"(?P<{name}>{self.grammar.units[name]})" for name in _UNITS)
        count = rf"\d{{1,4}}|{'|'.join(sorted(self.numbers, key=len, reverse=True))}"
        return words(rf"(?P<within>(?:{self.within})\s)?(?P<count>{count})[\s-]?(?:{units})")

    @cached_property
    def clock(self) -> re.Pattern[str]:
        return re.compile(
            rf"(?<![\w:.,/-])(?P<at>(?:{self.at})\s?)?(?P<hour>\d{{1,2}})"
            rf"(?:(?P<between>[:.]|{self.separator})(?P<minute>\d\d))?"
            rf"(?P<suffix>\s?(?:{self.suffix}))?(?![\w:]|[.,/-]\d)"
        )

    @cached_property
    def weekdays(self) -> tuple[re.Pattern[str], ...]:
        return tuple(words(day) for day in self.grammar.weekdays)


def words(lines: str) -> re.Pattern[str]:
    """A pattern of whole words, one alternative per line."""
    alternatives = "|".join(filter(None, map(str.strip, lines.splitlines())))
    return re.compile(rf"(?<![\w'])(?:{alternatives})(?![\w'])")


_DATES: Final = r"\d{1,2}[./]\d{1,2}[./]?(?:\d{2,4})?(?= |$)|\d{4}-\d\d(?:-\d\d)?|\d{1,2}(?:st|nd|rd|th|er|e|o|a)|\d{1,2}\. \w+"
_YOU_DE: Final = "(?:dich|sie|euch|dir|ihnen)"
_YOU_FR: Final = "(?:te|vous|t'|te le|vous le|t'y|te la)"

REMINDING: Final[tuple[Reminding, ...]] = (
    Reminding(
        grammar=ENGLISH,
        promises=r"""
            (?:i'll|ill|i will|i shall|i'm going to|i am going to|i'm gonna|we'll|we will)(?: definitely| certainly| gladly| happily| also| then| just| be sure to| make sure to| surely| absolutely| of course| go ahead and)* (?:remind|nudge|ping) you(?! (?:that|how|why|who|what|of (?:what|how|the rules)))
            (?:i'll|i will|i shall|i'm going to|i am going to)(?: also| then| just| be sure to| make sure to)* (?:send|give|drop|shoot) you (?:a|another|the|your) (?:\w+ ){0,2}(?:reminder|nudge|ping)
            (?:i'll|i will|i shall|i'm going to|i am going to)(?: also| then| just)* (?:set|schedule|create|add|make)(?: up)?(?: you)? (?:a|the|your|another|that) (?:\w+ ){0,2}reminder
            (?:i've|i have|i just|i) (?:just |now |also )?(?:set|scheduled|created|added|made)(?: up)?(?: you)? (?:a|the|your|another|that|this) (?:\w+ ){0,2}reminder
            (?:your |the )?reminder (?:is |has been |'s )?(?:now |all )?(?:set|scheduled|created|in place)
            you(?:'ll| will) (?:get|receive|have) (?:a|my|your|the) reminder
        """,
        others=r"""
            if|unless|in case|should you|would you like|want me to|shall i|should i|let me know|just (?:say|ask|tell)|tell me
            when(?:ever)? (?:you|i|we)|once (?:you|i|we)|as soon as|next time|after you|you (?:asked|said|told|wanted|mentioned)|(?:i|he|she|they|it) (?:said|told|says|promised|never|wish)
            i (?:don't|do not) (?:think|know|believe)|pretend|imagine|yesterday|last (?:week|time|night|month|year)|ago|would|could
        """,
        asks=r"remind(?:er|ers|ing|ed)?|(?:don't|do not|dont) let me forget|(?:ping|nudge|alert|wake) me",
        within="in",
        at="at|@|for",
        separator="[:.]",
        suffix=r"o'?clock|[ap]\.?m\.?",
        morning=r"(?:in the |this )?morning",
        later=r"(?:in the |this )?(?:afternoon|evening)|tonight|at night",
        days=(
            "today|tonight|this (?:afternoon|evening)",
            "tomorrow|tmrw",
            "(?:the )?day after tomorrow",
        ),
        unclear=r"""
            every|each|daily|weekly|monthly|yearly|weekdays|mornings|evenings|again and again|next (?:mon|tues|wednes|thurs|fri|satur|sun)day|next (?:week|month|year)|weekend
            half|quarter|couple|few|several|or|(?:before|after|by|until|till|around|about|between|from|past|to)(?= \d)|before|afterwards|earlier|noon|midnight
            january|february|march|april|june|july|august|september|october|november|december|may \d+|\d+ may|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec
        """,
    ),
    Reminding(
        grammar=GERMAN,
        promises=rf"""
            ich erinnere {_YOU_DE}(?! daran,? dass| an (?:die|das|unsere) regeln)
            erinnere ich {_YOU_DE}(?! daran,? dass)
            (?:ich (?:werde|werd)|werde ich) {_YOU_DE} (?:[\w:.,]+ ){{0,9}}(?:daran )?(?:erinnern|eine erinnerung (?:schicken|senden))
            (?:ich (?:stelle|setze|richte|schicke|sende|lege|erstelle|gebe)|(?:schicke|sende|stelle|setze) ich) (?:{_YOU_DE} )?(?:[\w:.,]+ ){{0,6}}(?:eine|die|deine|ihre) erinnerung
            (?:ich (?:habe|hab)|habe ich) (?:{_YOU_DE} )?(?:[\w:.,]+ ){{0,3}}(?:eine|die|deine|ihre) erinnerung (?:[\w:.,]+ ){{0,7}}(?:gestellt|gesetzt|eingerichtet|angelegt|erstellt)
            (?:die |deine |ihre )?erinnerung (?:ist |wurde )?(?:[\w:.,]+ ){{0,5}}(?:gestellt|gesetzt|eingerichtet|angelegt|erstellt|geplant)
            (?:du bekommst|sie bekommen|du erhaltst|sie erhalten) (?:[\w:.,]+ ){{0,6}}(?:eine|die|deine) erinnerung
        """,
        others=r"""
            wenn|falls|sofern|soll(?:te)? ich|mochtest|moechtest|mochten|willst|wollen|sag(?:en sie)?|sobald|beim nachsten mal|nachstes mal|nachdem|bevor
            hast (?:mich|du|mir)|haben sie|gebeten|gesagt|sagte|sagtest|wurde(?= (?:ich|dich|sie))|wuerde|konnte|kann ich|gestern|letzte\w*|damals|nicht
        """,
        asks=r"erinner\w*|vergess\w*|weck\w* mich|sag mir bescheid",
        within="in",
        at="um",
        separator="[:.]|[ ]?uhr[ ]",
        suffix="uhr",
        morning=r"morgens|am morgen|heute morgen|fruh|frueh|vormittags?|am vormittag|(?<=tag )morgen|(?<=mittwoch )morgen",
        later=r"abends?|am abend|nachmittags?|am nachmittag|heute abend|nachts",
        days=("heute", "morgen", "ubermorgen|uebermorgen"),
        unclear=r"""
            jede\w*|taglich\w*|taeglich\w*|wochentlich\w*|monatlich\w*|werktags|immer|nachste\w*|naechste\w*|kommende\w*|wochenende
            halb\w*|viertel\w*|dreiviertel|paar|einige|mehrere|oder|(?:vor|nach|ab|bis|gegen|zwischen|von|kurz|ca)(?= \d)|vorher|davor|mittags?|mitternacht|montags|dienstags|mittwochs|donnerstags|freitags|samstags|sonntags
            januar|februar|marz|maerz|april|mai|juni|juli|august|september|oktober|november|dezember
        """,
    ),
    Reminding(
        grammar=FRENCH,
        promises=rf"""
            je {_YOU_FR} ?(?:rappellerai|rappelerai|ferai un rappel|enverrai un rappel|mettrai un rappel|previendrai)
            je {_YOU_FR} rappelle(?! (?:que|qu'|les regles))
            je (?:vais|viens de) {_YOU_FR} ?(?:le |y )?(?:rappeler|faire un rappel|envoyer un rappel|mettre un rappel)
            j'ai (?:bien |deja )?(?:programme|mis|cree|regle|ajoute|note|enregistre) (?:un|le|ton|votre|ce) rappel
            (?:je (?:programme|mets|cree|regle)|je vais (?:programmer|mettre|creer|regler)) (?:un|le|ton|votre|ce) rappel
            (?:le |ton |votre )?rappel (?:est |a ete )?(?:bien )?(?:programme|cree|regle|enregistre|note)
            (?:tu recevras|vous recevrez|tu auras|vous aurez) (?:un|mon|ton|votre) rappel
        """,
        others=r"""
            si|s'il|veux-tu|voulez-vous|veux|souhait\w*|dois-je|est-ce que|dis-moi|dites-moi|quand (?:tu|vous|je|on)|des que|lorsque|la prochaine fois|apres que
            tu m'as|vous m'avez|m'as|m'avez|demande|disait|dit|pourrais|peux|hier|derniere?|ne|n'ai
        """,
        asks=r"rappel\w*|n'oublie\w*|oublier|reveille-moi|previens-moi",
        within="dans",
        at="a",
        separator="[:.]|[ ]?h(?:eures?)?[ ]?",
        suffix="h(?:eures?)?",
        morning="(?:du |le )?matin",
        later="(?:du |ce |le )?soir|(?:de l'|cet |l')?apres-midi",
        days=("aujourd'hui|ce soir|cet apres-midi", "demain", "apres-demain|apres demain"),
        unclear=r"""
            chaque|tous|toutes|quotidien\w*|prochaine?|week-?end|demi\w*|quart|quelques|plusieurs|ou|(?:avant|apres|vers|entre|de|des|jusqu'a|d'ici)(?= \d)|avant|plus tot|midi|minuit
            janvier|fevrier|mars|avril|mai|juin|juillet|aout|septembre|octobre|novembre|decembre
        """,
    ),
    Reminding(
        grammar=SPANISH,
        promises=r"""
            (?:te|se|os|le) (?:lo |la )?recordare
            (?:te|se|os|le) (?:lo |la )?voy a recordar|voy a recordar(?:te|le|os|telo|selo)(?:lo)?
            te lo recuerdo|te recuerdo(?! (?:que|las reglas))
            (?:te|le|os) (?:enviare|mandare|pondre|hare|voy a (?:enviar|mandar|poner)) un recordatorio
            (?:ya )?(?:te )?(?:he (?:puesto|programado|creado|configurado|anadido|establecido)|puse|programe|cree|configure) (?:un|el|tu|su) recordatorio
            (?:pondre|programare|creare|voy a (?:poner|programar|crear)) (?:un|el|tu|su) recordatorio
            (?:el |tu |su )?recordatorio (?:esta |ha sido |queda )?(?:programado|creado|configurado|establecido|puesto)
            (?:recibiras|recibira|tendras) (?:un|mi|el|tu) recordatorio
        """,
        others=r"""
            si|quieres|quiere|gustaria|deseas|debo|dime|digame|avisame|cuando (?:tu|vuelvas|quieras|llegues|estes|me|yo)|en cuanto|la proxima vez|despues de que
            me (?:pediste|dijiste|has|pidio)|dijo|dijiste|pediste|podria|puedo|ayer|pasad[ao](?! manana)|no
        """,
        asks=r"recuerd\w*|recordar\w*|recordatorio|(?:no )?(?:olvid\w*|se me olvide)|avisame|despiertame",
        within="en|dentro de",
        at="a las?",
        separator="[:.]",
        suffix="h(?:oras?)?",
        morning="(?:de|por) la manana|del? mediodia",
        later="(?:de|por) la (?:tarde|noche)|esta (?:tarde|noche)",
        days=("hoy|esta (?:tarde|noche)", "manana", "pasado manana"),
        unclear=r"""
            cada|todos|todas|diari\w*|proxim[ao]|que viene|fin de semana|finde|medi[ao]|cuarto|un par|unos|unas|varios|varias|(?:o|u)(?= (?:a )?(?:las )?\d)|(?:antes de|despues de|sobre|hacia|entre|desde|hasta)(?= (?:las )?\d)|antes|mediodia|medianoche
            enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre
        """,
    ),
    Reminding(
        grammar=ITALIAN,
        promises=r"""
            (?:ti|te|le|vi|glie) ?(?:lo |la )?ricordero|te lo ricordo|ti ricordo(?! (?:che|le regole))
            (?:ti|te|le|vi) (?:lo )?faro (?:un promemoria|avere un promemoria)|(?:ti|le|vi) (?:mandero|inviero|mettero|mando|invio|imposto) un promemoria
            ho (?:gia )?(?:impostato|creato|programmato|messo|aggiunto) (?:un|il|il tuo|il suo) promemoria
            (?:impostero|creero|programmero|mettero|imposto|creo) (?:un|il|il tuo) promemoria
            (?:il |il tuo )?promemoria (?:e |e stato )?(?:impostato|creato|programmato|salvato)
            (?:riceverai|ricevera|avrai) (?:un|il mio|il tuo) promemoria
        """,
        others=r"""
            se|vuoi|vuole|desideri|devo|dimmi|mi dica|fammi sapere|quando (?:tu|torni|vuoi|arrivi|sarai|io|mi)|appena|non appena|la prossima volta|dopo che
            mi (?:hai|ha) (?:chiesto|detto)|chiesto|detto|disse|potrei|posso|ieri|scors[ao]|non
        """,
        asks=r"ricord\w*|promemoria|dimentic\w*|avvisami|svegliami",
        within="tra|fra",
        at="alle(?: ore)?|all'",
        separator="[:.]",
        suffix="h|in punto",
        morning="di mattina|del mattino|mattina",
        later="di sera|di pomeriggio|del pomeriggio|pomeriggio|sera|stasera",
        days=("oggi|stasera|questa sera", "domani", "dopodomani"),
        unclear=r"""
            ogni|tutti|tutte|quotidian\w*|prossim[ao]|weekend|week-end|fine settimana|mezz\w*|mezza|quarto|paio|qualche|alcuni|(?:o|oppure)(?= (?:alle )?\d)|(?:prima delle|dopo le|verso le|tra le|fra le|dalle|entro le|fino alle)(?= \d)|prima|mezzogiorno|mezzanotte
            gennaio|febbraio|marzo|aprile|maggio|giugno|luglio|agosto|settembre|ottobre|novembre|dicembre
        """,
    ),
    Reminding(
        grammar=PORTUGUESE,
        promises=r"""
            vou (?:te |lhe |vos )?(?:lembrar|relembrar)(?:-te|-lhe)?(?! (?:que|as regras))|vou lembra-l[ao]
            (?:te|lhe) (?:lembro|lembrarei|relembrarei)(?! que)|lembro-(?:te|lhe)(?! (?:que|de que))|lembrarei(?: voce)?|lembrar-te-ei|lembro voce(?! que)
            (?:vou (?:te |lhe )?(?:criar|definir|mandar|enviar|colocar|agendar|programar)(?:-te|-lhe)?|(?:te |lhe )?(?:enviarei|mandarei)|envio-te|mando-te) um lembrete
            (?:ja )?(?:criei|defini|programei|agendei|coloquei|configurei|marquei) (?:um|o|seu|teu|o seu|o teu) lembrete
            (?:o |seu |teu |o seu |o teu )?lembrete (?:esta |foi |fica )?(?:criado|definido|programado|agendado|configurado|marcado)
            (?:voce vai receber|voce recebera|vais receber|recebera|receberas) (?:um|o|meu|o meu|o seu) lembrete
        """,
        others=r"""
            se|quer|queres|quiser\w*|gostaria\w*|deseja\w*|devo|diga-me|diz-me|me diga|me avise|quando (?:voce|tu|voltar|quiser|chegar|eu)|assim que|da proxima vez|depois que
            (?:voce |tu )?(?:me )?(?:pediu|pediste|disse|disseste)|poderia|posso|ontem|passad[ao]|nao
        """,
        asks=r"lembr\w*|relembr\w*|esquec\w*|avis[ae]-?(?: ?me)?|me avis[ae]|acord[ae]-me",
        within="em|daqui a|dentro de",
        at="as|a",
        separator="[:.]|[ ]?h(?:oras?)?[ ]?",
        suffix="h(?:oras?)?",
        morning="(?:da|de) manha",
        later="(?:da|a|de) (?:tarde|noite)|hoje a (?:tarde|noite)",
        days=("hoje|esta noite|esta tarde", "amanha", "depois de amanha"),
        unclear=r"""
            cada|tod[ao]s?|diari\w*|proxim[ao]|que vem|fim de semana|final de semana|mei[ao]|quarto|um par|uns|umas|varios|varias|alguns|algumas|ou(?= (?:as )?\d)|(?:antes das|depois das|por volta das|entre as|desde as|ate as|das)(?= \d)|antes|meio-dia|meia-noite
            janeiro|fevereiro|marco|abril|maio|junho|julho|agosto|setembro|outubro|novembro|dezembro
        """,
    ),
    Reminding(
        grammar=DUTCH,
        promises=r"""
            (?:ik (?:zal|ga)|(?:zal|ga) ik) (?:je|jou|u|jullie) (?:[\w:.,]+ ){0,9}(?:herinneren|helpen herinneren|een herinnering (?:sturen|geven))
            ik herinner (?:je|jou|u|jullie)(?! (?:eraan|er ?aan|aan het feit)?,? ?dat| aan de regels)|herinner ik (?:je|jou|u|jullie)(?! (?:eraan|er ?aan),? dat)
            (?:ik (?:stuur|geef|zet|maak|plan)|(?:stuur|geef|zet) ik) (?:je |jou |u |jullie )?(?:[\w:.,]+ ){0,6}(?:een|de|je|uw) herinnering
            ik (?:heb|zal|ga) (?:je |u |voor je |voor u )?(?:een|de|je|uw) herinnering (?:[\w:.,]+ ){0,7}(?:ingesteld|gezet|gemaakt|gepland|aangemaakt|instellen|maken|zetten|aanmaken)
            (?:de |je |uw )?herinnering (?:is |staat )?(?:[\w:.,]+ ){0,5}(?:ingesteld|gezet|gemaakt|gepland|aangemaakt)
            (?:je krijgt|u krijgt|je ontvangt|u ontvangt) (?:[\w:.,]+ ){0,6}(?:een|de|je|mijn) herinnering
        """,
        others=r"""
            als|indien|wil je|wilt u|wil jij|wilt|zou|zeg|zegt|laat (?:het )?me weten|zodra|wanneer (?:je|u|ik|jij)|de volgende keer|nadat|voordat
            je vroeg|u vroeg|je hebt|u hebt|vroeg|zei|gezegd|gevraagd|kan ik|kon|gisteren|vorige|toen|niet
        """,
        asks=r"herinner\w*|vergeet|vergeten|wek me|maak me wakker",
        within="over|binnen",
        at="om",
        separator="[:.]",
        suffix="uur",
        morning="'?s (?:ochtends|morgens)|in de ochtend|ochtend|vanochtend",
        later="'?s (?:avonds|middags)|in de (?:avond|middag)|vanavond|vanmiddag|avond|middag",
        days=("vandaag|vanavond|vanmiddag", "morgen", "overmorgen"),
        unclear=r"""
            elke?|iedere?|dagelijks\w*|wekelijks\w*|maandelijks\w*|volgende|komende|weekend|weekeinde|half|halve|anderhal\w*|kwart\w*|paar|enkele|of(?= (?:om )?\d)|(?:voor|na|rond|tegen|tussen|vanaf|tot|van)(?= \d)|ervoor|tevoren|eerder|middernacht|morgen(?:avond|middag)
            januari|februari|maart|april|mei|juni|juli|augustus|september|oktober|november|december
        """,
    ),
)
