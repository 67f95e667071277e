"""How an agent promises not to write on its own any more, in each language.

Phrases are in lower case without accents, one pattern per line, as in the grammars of requests.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Words that may lead a promise, the promise itself, and words that may end it.

    `link` joins clauses that share the `subject`: "I understand and won't write to you any more".
    """

    leads: str
    promises: str
    endings: str
    link: str
    subject: str = ""


_WONT = (
    "(?:(?:i|we)(?: will|'ll| shall)? (?:not|never|no longer)|(?:i|we) won't"
    "|(?:i'm|i am) not going to|i promise not to)(?: ever| be)?"
)
_STOP = "(?:i'll|i will|i'm going to|i am going to|let me) (?:stop|cease|quit|refrain from|avoid)"
_SOME = "(?: (?:any|more|any more|further|such|these|unsolicited|other|follow-?up))*"
_MESSAGES = "(?:messages|texts|follow(?:-| )?ups|check(?:-| )?ins|nudges|reminders|notifications)"
_WRITE = (
    "(?:write(?: to)?|message|text|contact|bother|disturb|ping|pester|nudge|e-?mail|reach out to"
    "|check (?:in |up )?(?:on|with)|follow up with|get in touch with)"
)
_WRITING = (
    "(?:writing(?: to)?|messaging|texting|contacting|bothering|disturbing|pinging|pestering"
    "|nudging|e-?mailing|reaching out to|checking (?:in |up )?(?:on|with)|following up with)"
)

ENGLISH: Final = Acknowledgement(
    leads="okay|ok|and|so|but|then|that|right|sure|fine|alright|i promise(?: you)?(?: that)?"
    "|from (?:now|here) on|going forward|in (?:the )?future|(?:this|that) means(?: that)?|i understand(?: and)?",
    promises=rf"""
        {_WONT} (?:{_WRITE}|{_WRITING}) you
        {_WONT} (?:follow up|check in|reach out|get in touch|(?:write|message) first)
        {_WONT} send(?:ing)?(?: you)?{_SOME} {_MESSAGES}
        {_STOP} (?:{_WRITING} you|checking in|following up|reaching out|sending(?: you)?{_SOME} {_MESSAGES})
        (?:i'll|i will|i'm going to) leave you (?:alone|in peace|be)
        (?:i'll|i will) only (?:reply|respond|answer|write|reach out|message you|write to you)(?: to you)? (?:when|if|after|once) you (?:write|message|text|contact|ask|reach out|talk|speak|start)\b.{{0,30}}
        you (?:won't|will not|will no longer|will never|'ll no longer) (?:hear from me|(?:be )?(?:get|getting|receive|receiving){_SOME} {_MESSAGES} from me)
        no (?:more|further) {_MESSAGES} from me
        {_WONT} (?:start|initiate)(?: any| new| a)* (?:conversations?|contact|chats?)(?: with you)?
        (?:i'll|i will) (?:wait|stay (?:quiet|silent)|keep quiet) (?:until|till|for) you (?:to )?(?:write|message|text|contact|reach out)\b.{{0,30}}
        (?:i've|i have) (?:turned|switched) off (?:the |your |my |all )*(?:messages|follow(?:-| )?ups|check(?:-| )?ins)
    """,
    endings="again|any ?more|any longer|any further|further|ever|from now on|in (?:the )?future"
    "|going forward|on my own(?: initiative)?|first|unprompted|at all|i promise|for good|then"
    "|right away|immediately|now",
    link="and|so|but|then",
    subject="i",
)

_DIR = "(?:dir|dich|ihnen|sie|euch)"
_MEHR = "(?:nicht|nie|niemals) (?:mehr|wieder|weiter|langer)"
_NUN = (
    "(?:ab (?:jetzt|sofort|heute|nun)|von (?:jetzt|nun) an|kunftig|zukunftig|in zukunft|nun|jetzt|dann"
    "|von (?:mir aus|selbst|allein|alleine)|naturlich|selbstverstandlich|unaufgefordert)"
)
_ICH = "(?:schreibe|kontaktiere|store|nerve|belastige|behellige|benachrichtige)"
_KEINE = "keine (?:weiteren? )?(?:nachrichten|mitteilungen|erinnerungen|follow-?ups|check-?ins)"

GERMAN: Final = Acknowledgement(
    leads=rf"okay|ok|gut|und|also|aber|dann|das heisst|ich verspreche(?: dir| ihnen)?(?: dass)?|{_NUN}",
    promises=rf"""
        (?:ich {_ICH}|{_NUN} {_ICH} ich) {_DIR}(?: {_NUN})* {_MEHR}
        ich werde {_DIR}(?: {_NUN})* {_MEHR}(?: {_NUN})* (?:schreiben|anschreiben|kontaktieren|storen|nerven|belastigen|behelligen|benachrichtigen)
        (?:ich melde|{_NUN} melde ich) mich(?: bei {_DIR}| {_NUN})* {_MEHR}
        ich werde mich(?: bei {_DIR}| {_NUN})* {_MEHR}(?: bei {_DIR}| {_NUN})* melden
        ich melde mich (?:erst|nur)(?: noch| dann| wieder)* wenn (?:du|sie) .{{1,40}}
        ich (?:antworte|schreibe|reagiere)(?: dir| ihnen)? nur(?: noch| dann)* wenn (?:du|sie) .{{1,40}}
        (?:ich lasse?|{_NUN} lasse ich) {_DIR}(?: {_NUN})* in (?:ruhe|frieden)
        ich werde {_DIR}(?: {_NUN})* in (?:ruhe|frieden) lassen
        (?:ich (?:schicke|sende|schreibe)|{_NUN} (?:schicke|sende|schreibe) ich) {_DIR}(?: {_NUN})* {_KEINE} mehr
        ich werde {_DIR}(?: {_NUN})* {_KEINE}(?: mehr)? (?:schicken|senden|schreiben)
        ich hore(?: damit)? auf {_DIR} (?:(?:nachrichten )?zu (?:schreiben|kontaktieren|storen|nerven|schicken|senden)|anzuschreiben)
        (?:du|sie) (?:wirst|werden) von mir(?: {_NUN})* (?:nichts|{_KEINE})(?: mehr)? (?:horen|erhalten|bekommen)
        (?:du|sie) (?:horst|horen|bekommst|bekommen|erhaltst|erhalten) (?:von mir (?:nichts|{_KEINE}) mehr|(?:nichts|{_KEINE}) mehr von mir)
        ich (?:frage|hake)(?: {_NUN})* {_MEHR} nach|ich werde(?: {_NUN})* {_MEHR} (?:nachfragen|nachhaken)
        {_NUN} (?:horst|bekommst|erhaltst) du (?:nichts|{_KEINE}) mehr von mir
        {_KEINE} mehr von mir|von mir kommt(?: {_NUN})* (?:nichts|{_KEINE}) mehr
        ich werde(?: {_NUN})* {_KEINE} mehr an {_DIR} (?:schicken|senden|schreiben)
        ich warte(?: {_NUN})* bis (?:du|sie) (?:mir |mich |dich |sich )?(?:schreib|meld|kontaktier)\w*(?: mir)?.{{0,20}}
    """,
    endings=rf"{_NUN}|mehr|versprochen|an|bei {_DIR}",
    link="und|also|aber",
    subject="ich",
)

_TE = "(?:t'|te |vous )"
_ECRIRE = "(?:ecrire|contacter|deranger|relancer|embeter|importuner|solliciter|recontacter|ennuyer)"
_ECRIRAI = (
    "(?:r?e?ecrirai|contacterai|derangerai|relancerai|embeterai|importunerai|solliciterai"
    "|recontacterai|ennuierai|ecris|contacte|derange|relance)"
)

FRENCH: Final = Acknowledgement(
    leads="ok|bien|et|donc|alors|mais|je (?:te |vous )?promets que|desormais|dorenavant|a l'avenir",
    promises=rf"""
        je ne {_TE}{_ECRIRAI} plus
        je ne vais plus {_TE}{_ECRIRE}
        je ne {_TE}(?:enverrai|envoie|adresserai) plus (?:de |d'autres |aucun )?(?:messages?|rappels?|relances?)
        je ne vais plus {_TE}envoyer (?:de |d'autres )?messages?
        (?:j'arrete|je cesse|je cesserai|j'arreterai|je vais (?:arreter|cesser)) de {_TE}(?:{_ECRIRE}|envoyer (?:des|de|ces) messages)
        je (?:te|vous) (?:laisse|laisserai)(?: desormais| donc)? (?:tranquilles?|en paix)
        je vais (?:te|vous) laisser (?:tranquilles?|en paix)
        (?:tu ne recevras|vous ne recevrez) plus (?:de |d'autres |aucun )?(?:messages?|nouvelles) de (?:ma part|moi)
        (?:tu n'auras|vous n'aurez) plus de nouvelles de (?:moi|ma part)|(?:tu n'entendras|vous n'entendrez) plus parler de moi
        je ne prendrai plus (?:de (?:tes |vos )?nouvelles|contact(?: avec (?:toi|vous))?)
        je ne (?:te |vous |t')?(?:repondrai|reponds|ecrirai) que (?:lorsque|quand|si) (?:tu|vous) .{{1,40}}
        plus (?:de|aucun) messages? de ma part|j'arrete (?:les|mes|ces) messages
        je n'enverrai plus (?:de |d'autres |aucun )?(?:messages?|rappels?|relances?)
        je (?:n'initierai|ne commencerai|n'engagerai) plus (?:de |la )conversations?(?: avec (?:toi|vous))?
        j'attendrai que (?:tu|vous) (?:m'ecri\w+|me (?:contact|parl)\w+).{{0,20}}
    """,
    endings="desormais|dorenavant|a l'avenir|a present|maintenant|jamais|promis|c'est promis|de moi-meme|spontanement"
    "|de ma propre initiative|en premier|tout de suite",
    link="et|donc|mais|alors",
    subject="je",
)

_ESCRIBIR = "(?:escribir|contactar|molestar|buscar|incomodar)"
_ESCRIBIRE = "(?:escribire|contactare|molestare|buscare|incomodare|escribo|contacto|molesto|busco)"
_MENSAJES = "(?:mensajes|recordatorios|avisos|notificaciones)"
_LE = "(?:te|le|os|les|lo|la)"

SPANISH: Final = Acknowledgement(
    leads="ok|vale|y|pues|entonces|pero|te prometo que|le prometo que|prometo que|en adelante",
    promises=rf"""
        no {_LE} {_ESCRIBIRE} (?:mas|nunca|jamas)
        (?:ya|a partir de ahora|de ahora en adelante) no {_LE} {_ESCRIBIRE}
        no {_LE} voy a {_ESCRIBIR} mas|no voy a {_ESCRIBIR}{_LE} mas
        no (?:volvere|vuelvo|voy a volver) a {_ESCRIBIR}{_LE}|no {_LE} (?:volvere|vuelvo|voy a volver) a {_ESCRIBIR}
        no (?:iniciare|empezare|voy a iniciar) (?:mas |nuevas )?conversaciones(?: contigo| con usted)?
        no {_LE} (?:mandare|enviare|escribire|mando|envio) (?:mas|otros|nuevos) {_MENSAJES}
        (?:ya|a partir de ahora|de ahora en adelante) no {_LE} (?:mandare|enviare)(?: mas)? {_MENSAJES}
        (?:dejare|dejo|voy a dejar|parare|paro) de (?:{_ESCRIBIR}{_LE}|(?:mandar|enviar){_LE}(?: mas)? {_MENSAJES})
        {_LE} (?:dejare|dejo|voy a dejar) (?:en paz|tranquil[oa])
        (?:ya )?no (?:recibiras|recibira)(?: mas)? mensajes (?:mios|de mi parte)
        no (?:volveras|volvera) a saber de mi|no (?:sabras|sabra) mas de mi
        solo (?:te |le )?(?:respondere|escribire|contestare) (?:cuando|si) (?:tu |usted )?(?:me )?.{{1,40}}
        no (?:hare|habra) mas (?:seguimientos?|mensajes)(?: de mi parte)?
        (?:esperare|espero|voy a esperar) a que (?:tu |usted )?me (?:escrib|contact|habl)\w+.{{0,20}}
    """,
    endings="mas|nunca|jamas|a partir de ahora|en el futuro|por mi cuenta|en adelante|prometido"
    "|por iniciativa propia|lo prometo|de nuevo",
    link="y|asi que|pero|entonces",
)

_TI = "(?:ti|le|vi|la|lo)"
_SCRIVERO = "(?:scriv|contatt|disturb|cerch|import[ua]n|infastid)(?:ero|iro|o)"

ITALIAN: Final = Acknowledgement(
    leads="ok|bene|e|allora|quindi|ma|ti prometto che|le prometto che|prometto che|d'ora in poi",
    promises=rf"""
        non {_TI} (?:{_SCRIVERO}|cerco) (?:piu|mai piu|ulteriormente|oltre)
        non {_TI} (?:mandero|inviero|mando|invio|scrivero) (?:piu|altri|ulteriori|piu altri) (?:messaggi|promemoria|avvisi|notifiche)
        (?:la )?(?:smettero|smetto) di (?:(?:scriver|contattar|disturbar|cercar){_TI}|(?:mandar|inviar){_TI} messaggi)
        {_TI} (?:lascio|lascero) (?:in pace|tranquill[oa]|stare)
        non (?:riceverai|ricevera) (?:piu|altri) messaggi (?:da parte mia|da me|miei)
        non (?:avviero|iniziero) (?:piu|altre) conversazioni(?: con (?:te|lei))?
        non mi faro (?:piu|mai piu) (?:sentire|viv[oa])|non avr(?:ai|a) piu mie notizie
        {_TI}? ?(?:rispondero|rispondo|scrivero) (?:solo|soltanto) (?:quando|se) .{{1,40}}
        (?:aspettero|aspetto) che (?:sia (?:tu|lei) a (?:scriver|contattar)mi|(?:tu |lei )?mi (?:scriv|contatt)\w+).{{0,20}}
    """,
    endings="piu|mai piu|d'ora in poi|da ora in poi|in futuro|promesso|te lo prometto"
    "|di mia iniziativa|per prim[oa]|subito",
    link="e|quindi|ma|allora",
)

_ESCREVER = "(?:escrever?|contac?tar?|incomodar?|procurar?|perturbar?|chatear?|importunar?)"
_ESCREVO = (
    "(?:escrevo|escreverei|contac?to|contac?tarei|incomodo|incomodarei|procuro|procurarei"
    "|perturbo|perturbarei|chateio|chatearei)"
)
_MENSAGENS = "(?:mensagens|lembretes|avisos|notificacoes)"
_VOCE = "(?:-te|-lhe|-lo|-la| voce| a voce| para voce)"

PORTUGUESE: Final = Acknowledgement(
    leads="ok|certo|e|entao|mas|prometo que|a partir de agora|de agora em diante",
    promises=rf"""
        nao (?:te|lhe|o|a) {_ESCREVO} mais
        nao (?:{_ESCREVO} mais (?:para voce|a voce)|vou (?:mais iniciar|iniciar mais) conversas(?: com voce| contigo)?)
        nao vou mais (?:(?:te|lhe) {_ESCREVER}|{_ESCREVER}{_VOCE})|nao vou (?:(?:te|lhe) {_ESCREVER}|{_ESCREVER}{_VOCE}) mais
        nao (?:volto|voltarei|vou voltar) a (?:(?:te|lhe) {_ESCREVER}|{_ESCREVER}{_VOCE})
        nao (?:te |lhe )?(?:mando|mandarei|envio|enviarei) mais {_MENSAGENS}|nao vou mais (?:te |lhe )?(?:mandar|enviar)(?:-te|-lhe)? {_MENSAGENS}
        nao (?:entrarei|entro|vou entrar|vou) mais (?:entrar )?em contac?to(?: com voce| contigo| consigo)?
        nao (?:volto|voltarei|vou voltar) a entrar em contac?to(?: com voce| contigo| consigo)?
        (?:vou esperar|esperarei|espero) (?:ate )?que (?:voce |tu )?me (?:escrev|contac?t|fal|procur)\w+.{{0,20}}
        (?:vou parar|paro|pararei|vou deixar|deixarei|deixo) de (?:(?:te |lhe )(?:{_ESCREVER}|(?:mandar|enviar) mensagens)|entrar em contac?to(?: com voce| contigo)|{_ESCREVER}{_VOCE})
        (?:vou (?:te |lhe )?deixar{_VOCE}?|deixo-te|te deixo|vou deixa-l[oa]|deixarei voce|deixo voce) em paz
        (?:voce |tu )?nao (?:recebera|receberas|vai receber|vais receber) mais mensagens (?:minhas|da minha parte)
        so (?:te |lhe )?(?:responderei|respondo|vou responder|escreverei) (?:quando|se) .{{1,40}}
    """,
    endings="mais|a partir de agora|no futuro|prometo|por iniciativa propria|de novo|nunca mais",
    link="e|entao|mas|por isso",
)

_JE = "(?:je|jou|u|jullie)"
_NOOIT = "(?:niet|nooit) (?:meer|langer|weer|opnieuw)"
_BERICHTEN = "(?:berichten|berichtjes|herinneringen|meldingen|notificaties)"
_VOORTAAN = "(?:voortaan|vanaf nu|in de toekomst|uit mezelf|dan|ook)"

DUTCH: Final = Acknowledgement(
    leads=rf"oke|ok|goed|en|dus|dan|maar|ik beloof(?: je)? dat|{_VOORTAAN}",
    promises=rf"""
        ik (?:schrijf|app|benader|contacteer|stoor|mail) {_JE}(?: {_VOORTAAN})* {_NOOIT}
        ik (?:zal|ga) {_JE}(?: {_VOORTAAN})* {_NOOIT} (?:schrijven|benaderen|storen|lastig ?vallen|contacteren|appen)
        ik (?:begin|start) geen (?:nieuwe )?gesprekken meer(?: met {_JE})?|ik stuur {_JE} (?:niets|niks) meer
        ik val {_JE} {_NOOIT} lastig
        ik neem (?:geen contact meer|{_NOOIT}(?: {_VOORTAAN})* contact)(?: met {_JE})? op
        ik zal(?: {_VOORTAAN})* (?:geen contact meer|{_NOOIT} contact)(?: met {_JE})? opnemen
        ik wacht (?:tot|totdat) (?:je|jij|u) (?:me |mij )?(?:schrij|contact|benader)\w+.{{0,20}}
        ik (?:stuur|zal) {_JE} geen (?:verdere )?{_BERICHTEN} meer(?: sturen)?
        ik (?:stop|hou op|houd op|zal stoppen|ga stoppen) met (?:{_JE} te (?:schrijven|benaderen|storen|appen)|(?:het sturen van {_BERICHTEN}|(?:{_JE} )?{_BERICHTEN} (?:te )?sturen))
        ik (?:laat|zal) {_JE}(?: {_VOORTAAN})* met rust(?: laten)?
        (?:je|jij|u) (?:krijgt|ontvangt|zult|zal) geen {_BERICHTEN} meer van (?:mij|me)(?: krijgen| ontvangen)?
        (?:je|jij|u) hoort (?:niets|niks) meer van (?:mij|me)
        ik (?:reageer|antwoord|schrijf)(?: je)? alleen (?:nog )?(?:als|wanneer) (?:je|jij|u) .{{1,40}}
    """,
    endings=rf"{_VOORTAAN}|meer|beloofd|dat beloof ik",
    link="en|dus|maar|dan",
    subject="ik",
)

ACKNOWLEDGEMENTS: Final = (ENGLISH, GERMAN, FRENCH, SPANISH, ITALIAN, PORTUGUESE, DUTCH)
