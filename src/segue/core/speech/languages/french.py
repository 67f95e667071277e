"""French requests about follow-ups."""

from typing import Final

from segue.core.speech.languages.grammar import Grammar, Part, numbers, units

FRENCH: Final = Grammar(
    lists={
        "degree": "s'il (?:te|vous) plait|stp|svp|maintenant|vraiment|juste|enfin|tout de suite|donc|aussi|simplement|desormais",
        "me": "me|m'|nous|moi",
        "plus": "plus|pas|jamais|plus jamais|surtout pas|surtout plus",
        # The verb after "arrete de", "ne veux plus que tu", and as a command.
        "write": (
            "ecri(?:re|s|t|ves|vez|ve)|contacte[rsz]?|derange[rsz]?|embete[rsz]?|harcele[rsz]?"
            "|relance[rsz]?|envoye[rz]|envoie[s]?|parle[rsz]?|ennuye[rz]|ennuie[s]?|spamme[rsz]?"
            "|texte[rsz]?|sollicite[rsz]?|notifie[rsz]?|solliciter|rappele[rz]|rappelle[s]?|saoule[rsz]?"
            "|soule[rsz]?|emmerde[rsz]?|importune[rsz]?|appele[rz]|recontacte[rsz]?|reecri(?:re|s|vez)|bombarde[rsz]?"
        ),
        "messages": (
            "messages?|relances?|notifications?|rappels?|sms|mails?|e-?mails?|textos?|suivis?"
            "|alertes?|messages? automatiques?|prises? de contact|nouvelles"
        ),
        "some": (
            "(?:(?:de|d'|des|ces|tes|vos|les|ce|tous|toutes|aucun|aucune|plus de|tous ces|tous tes"
            "|autres|ton|votre) ?)*"
        ),
    },
    leads=r"""
        <degree>|merci(?: de| de bien vouloir)?|ok|d'accord|non|oui|bon|ecoute|ecoutez|bonjour|salut|he|hey|alors|mais|et|bref|veuillez|priere de
        (?:peux|pourrais|veux|voudrais)-?(?: )?tu|(?:pouvez|pourriez|voulez|voudriez)-?(?: )?vous|tu (?:peux|pourrais|dois|devrais)|vous (?:pouvez|pourriez|devez|devriez)
        (?:je|j') ?(?:veux|voudrais|aimerais|souhaite|prefere|prefererais|demande|vous demande|te demande|t'ai dit|vous ai dit)(?: vraiment)?(?: que (?:tu|vous)| de| d')?
        est-ce que (?:tu|vous) (?:peux|pouvez|pourrais|pourriez)|ce serait bien (?:que|si) (?:tu|vous)|a partir de maintenant|a l'avenir|dorenavant
    """,
    stops=r"""
        (?:arrete[sz]?|cesse[sz]?|arreter|cesser|stop)(?: <degree>)*(?: avec)? (?:de |d')?(?:<me> ?)?(?:<write>)(?: <some>(?:<messages>))?(?: a)?(?: (?:moi|nous))?
        (?:arrete[sz]?|cesse[sz]?|arreter|cesser|stop|assez|marre|ca suffit|fini|plus|halte)(?: <degree>)* ?(?:avec |de |d'|a )?<some>(?:<messages>)
        (?:j'en ai (?:assez|marre)|ras le bol|y en a marre)(?: (?:de|avec))? ?<some>(?:<messages>)
        (?:ne |n')?(?:<me> ?)?(?:<write>)(?:-(?:moi|nous))? (?:<plus>)(?: (?:de|d'|a|la))?(?: rien| <some>(?:<messages>))?(?: moi)?
        (?:ne |n')?(?:<plus>) (?:<me> ?)?(?:<write>)(?: <some>(?:<messages>))?
        (?:(?:il|c')(?: )?(?:n')?est )?(?:pas|plus|inutile|pas la peine|pas besoin|plus besoin|aucun besoin)(?: (?:la peine|besoin|necessaire))? (?:de|d'|que tu|que vous) ?(?:<me> ?)?(?:<write>)(?: <some>(?:<messages>))?
        (?:tu n'as|vous n'avez|t'as)? ?(?:pas|plus) (?:besoin|a) (?:de |d')?(?:<me> ?)?(?:<write>)
        (?:je |j')?(?:ne |n')?(?:veux|voudrais|souhaite|desire|aimerais|ai)(?: vraiment)? (?:<plus>)(?: besoin)?(?: (?:que (?:tu|vous)|de|d'|recevoir|avoir|etre|qu'on|entendre parler))* ?(?:(?:<me> ?)(?:<write>)|(?:<write>)|<some>(?:<messages>)|(?:de )?toi|de tes nouvelles|contactee?|derangee?|relancee?|sollicitee?|harcelee?|toi)(?: de toi)?
        (?:je |j')?(?:ne |n')?(?:<plus>) (?:etre|recevoir|avoir|entendre parler)(?: (?:de|d'))? ?(?:contactee?|derangee?|relancee?|sollicitee?|toi|<some>(?:<messages>))
        (?:laisse|laissez|laisser|fiche|fichez|fous|foutez|foutre)[ -](?:moi|nous|me)? ?(?:la paix|tranquilles?|en paix|seule?|le camp|respirer)
        (?:me |nous )(?:laisse[rsz]?|laissiez|fiche|foute[sz]?|foutre) (?:la paix|tranquilles?|en paix|seule?)
        (?:va[- ]t'en|allez[- ]vous[- ]en|degage|casse[- ]toi|barre[- ]toi|tais[- ]toi|taisez[- ]vous|la ferme|ferme[- ]la|va te faire .*|disparais|silence|reste tranquille|oublie[- ]moi|oubliez[- ]moi|lache[- ]moi(?: les baskets)?|lachez[- ]moi)
        (?:plus|pas|aucun|aucune|plus jamais|plus aucun) (?:de |d')?(?:<messages>)(?: automatiques?)?
        (?:desabonne[rz]?|desinscri(?:re|s|vez)|desabonnement)(?:[- ]moi)?|(?:je )?(?:veux|souhaite|voudrais) (?:me )?(?:desabonner|desinscrire)|me (?:desabonner|desinscrire)
        (?:desactive[rz]?|coupe[rz]?|supprime[rz]?|suspend(?:re|s|ez)|eteins|stoppe[rz]?) (?:les|tes|vos|ces|tous les|toutes les|ce|mes) (?:<messages>)
        (?:retire|retirez|enleve|enlevez|supprime|supprimez)[- ]moi de (?:ta|votre|la|cette) liste
        (?:reponds|repondez|parle|parlez|ecris|ecrivez)(?:[- ]moi)?(?: )?(?:seulement|uniquement|que) (?:quand|si|lorsque) je.*|(?:ne )?(?:reponds|parle|ecris) que (?:quand|si|lorsque) je.*|(?:attends|attendez) que je (?:t'|vous |te )?(?:ecrive|parle|contacte|demande).*
        (?:tu|vous) (?:me |m'|nous )(?:deranges?|derangez|embetes?|saoules?|soules?|harceles?|harcelez|ennuies?|fatigues?|gonfles?|emmerdes?)
    """,
    commands="stop(?: tout| ca)?|arretez?(?: tout| ca)?|desabonnement|assez|ca suffit",
    endings=r"""
        <degree>|plus|jamais|encore|merci|ok|d'accord|ca|comme ca|tout le temps|sans arret|sans cesse|constamment|tous les jours|chaque jour|de ta part|de votre part|pour toujours|a jamais|definitivement|immediatement|a l'avenir|dorenavant|du tout|toi|vous|a moi|pour (?:ca|rien)|compris|hein|a ce sujet|la-dessus|sur ce sujet|si (?:possible|tu peux|je ne.*)|sauf si.*|tant que je.*|jusqu'a ce que je.*|avant que je.*|parce que.*|car .*|espece de .*|en premier|toute? seule?|spontanement|sans que je.*|bon sang|avec (?:ca|tes \w+|vos \w+|ces \w+)
    """,
    loose_stops=r"""
        stop(?: le)? spam
        (?:attendes|attends|attendez) que je (?:t'|vous |te )?(?:ecrive|parle|sollicite)|plus de (?:<messages>)(?: spontanes| automatiques)?
        n'en (?:envoie|envoyez) plus|(?:cesser|cesse|arreter|arrete|arretes) de (?:m'adresser|prendre(?: \w+){0,2} (?:nouvelles|contact)|m'envoyer)(?: \w+){0,6}
        ne m'ecri(?:s|vez|re) (?:plus de toi|que lorsque|que quand|que si)(?: \w+){0,6}|ne prends plus(?: jamais)? (?:contact|l'initiative)(?: \w+){0,6}|tu m'ecris(?: \w+){0,8} arrete
        (?:arrete[sz]?|arreter|cesse[sz]?|cesser|cessiez|evite[sz]?|stop)(?: \w+){0,3} (?:de |d')?(?:m'|me ?|nous |m)(?:\w+ )?(?:<write>|envoyer|envoies)
        (?:arrete[sz]?|arreter|cesse[sz]?)(?: \w+){0,4} (?:<messages>|msg|nouvelles de moi|spam)
        (?:ne |n')?(?:m'|me )(?:\w+ )?(?:<write>|envoie[sz]?|envoyez)(?:-moi)?(?: \w+){0,2} (?:plus|jamais|que (?:si|quand))(?: \w+){0,5}
        (?:ne )?(?:plus|jamais)(?: \w+){0,5} (?:m'|me )(?:\w+ )?(?:<write>|ecrives|envoyer|contacter|envoies)
        (?:veux|voudrais|souhaite|desire|voulais)(?: \w+){0,3} plus(?: \w+){0,5} (?:<messages>|en recevoir|contactee?|mecrives|m'ecrives|etre contactee?)
        plus etre (?:contactee?|derangee?|relancee?|sollicitee?)
        (?:n')?envoie[sz]? plus (?:rien|de (?:<messages>))|plus l'initiative|merci de ne plus (?:m'|me )\w+
        (?:desactive[rz]?|coupe[rz]?|supprime[rz]?)(?: \w+){0,2} (?:<messages>)(?: \w+){0,2}(?: que tu m'envoies| spontanes?| automatiques?)
        laisse[rz]?[- ](?:moi|nous)(?: \w+){0,2} (?:tranquilles?|en paix)|(?:tu m'ecris|tes messages)(?: \w+){0,6} (?:arrete[sz]?(?: ca)?|stop)|a m'ecrire(?: \w+){0,8} arrete
    """,
    vetoes=r"""
        (?:le|la|les|mon|ma) (?!messages?)\w+ (?:ne|n')(?: )?(?:m'|me )
        il|elle|ils|mon (?!telephone)\w+|ma (?!montre)\w+|mes \w+|lui|quelqu'un|les gens|voisine?|chef|patron|dis-lui|on m'a
        dit (?:que|de) (?:il|elle)|a dit|disait|tradui\w*|signifie|veut dire|chanson|poeme|lettre|phrase|titre|film|histoire|corrige\w*|reformule\w*|ecris(?:-moi)? (?:un|une) \w+
        (?:n'|ne )(?:t')?arrete[sz]? (?:pas|jamais)|netflix|newsletter|facebook|whatsapp|iphone|la nuit|le matin|le soir|avant \d\w*|apres \d\w*|le week-?end|trop longs?|si long|details|comment (?:faire|dire|arreter|bloquer|desactiver)|pourquoi|m'appelle (?:pas|plus)|oublie pas|en (?:anglais|francais|allemand)|listes?|paragraphes?|reponses?|liens?|pas que (?:tu|vous) (?:arret|cess)\w+|la banque|zalando|amazon
    """,
    laters=r"""
        pas (?:maintenant|aujourd'hui|ce soir|tout de suite|pour l'instant|pour le moment|cette semaine|la)|(?:c'est )?(?:pas|un mauvais) (?:le )?(?:bon )?moment|ce n'est pas le (?:bon )?moment|plus tard|une autre fois|un autre jour|peut-etre plus tard|on verra(?: plus tard)?
        (?:on (?:en )?(?:se )?(?:parle(?:ra)?|reparle(?:ra)?|continue(?:ra)?|voit|verra|reprend(?:ra)?|fait (?:ca|cela))|parlons(?:-en)?|reparlons(?:-en)?|continuons|reprenons|faisons (?:ca|cela)|peut-on (?:en )?(?:parler|reparler|continuer|reprendre|faire (?:ca|cela))|on peut (?:en )?(?:parler|reparler|continuer|reprendre|faire (?:ca|cela))|on pourrait (?:en )?(?:parler|reparler|continuer|faire (?:ca|cela))|je prefere (?:en )?(?:parler|continuer|voir ca))(?: (?:de ca|ca|cela|en))?
        (?:a|jusqu'a) (?:plus tard|demain|bientot|tout a l'heure|lundi|la semaine prochaine)|a plus|a\+
        (?:ecris|ecrivez|redemande|redemandez|demande|recontacte|recontactez|contacte|contactez|rappelle|rappelez|relance|relancez|reviens|revenez|reessaie|reessaye|reessayez)(?:[- ]moi)?(?: vers moi)?
        (?:je suis|j'suis|chuis|suis)(?: (?:tres|trop|un peu|vraiment|actuellement|encore|deja|assez|super|desolee?))* (?:occupee?|en reunion|au travail|au boulot|en cours|au volant|dans le (?:train|metro|bus)|en voiture|au telephone|chez le (?:medecin|dentiste)|en vacances|debordee?|pas dispo(?:nible)?|indisponible|prise?|en deplacement|au cinema|a table|en train de (?:conduire|travailler|manger|dormir))
        (?:je |j')?(?:n'ai|ai|n') ?(?:pas|plus)(?: vraiment)? (?:le |de )?temps|pas (?:le |de )?temps|j'ai pas (?:le )?temps
        (?:je |j')?(?:ne )?(?:peux|pourrai) pas(?: (?:te|vous))? ?(?:parler|repondre|discuter|ecrire)|(?:je |j')?(?:ai besoin|veux|voudrais) (?:d'un peu )?(?:de |d'une )?(?:temps|pause|reflechir|y reflechir|dormir)
        (?:donne|donnez|laisse|laissez)[- ]moi(?: (?:un peu de|le|du) (?:temps|repit)(?: de reflechir)?| une minute| un moment| reflechir)?
        (?:je )?(?:te|vous|t'|y|m'en)? ?(?:repondrai|reponds|recontacterai|recontacte|dirai|dis|reviendrai|reviens|ecrirai|tiens au courant|occuperai|reflechis|reflechirai)(?: (?:vers toi|vers vous|a ca|au courant))?
        ca (?:peut|devra|va) attendre
    """,
    goodbyes=r"""
        au revoir|adieu|salut|ciao|bye|a (?:bientot|plus|demain|tout a l'heure|la prochaine|plus tard|\+)|bonne (?:nuit|journee|soiree|fin de journee|continuation)|bon (?:week-?end|apres-midi)|prends soin de toi|c'est tout|ce sera tout|merci c'est tout|c'est bon merci
    """,
    resumes=r"""
        (?:que )?(?:tu|vous) (?:m'ecrives|m'ecriviez|peux|pouvez)(?: (?:a nouveau|de nouveau))?(?: m'(?:ecrire|envoyer des messages))?(?: (?:a nouveau|de nouveau))|reactive[rz]? (?:tes|vos|les) (?:<messages>)(?: spontanes| automatiques)?
        (?:tu|vous) (?:peux|pouvez)(?: maintenant)? (?:a nouveau |de nouveau )?(?:me |m'|nous )(?:<write>)(?: (?:a nouveau|de nouveau|encore|quand tu.*|quand vous.*|n'importe quand))*
        (?:<write>)[- ]moi (?:a nouveau|de nouveau|encore|quand tu.*)
        (?:recommence[rz]?|reprend(?:s|re|ez)?|continue[rz]?) (?:a |de )?(?:me |m')?(?:<write>|(?:les|tes|vos) (?:<messages>))
        (?:reactive[rz]?|active[rz]?|remets|remettez) (?:les|tes|vos) (?:<messages>)
        (?:je |j')?(?:veux|voudrais|aimerais|souhaite)(?: bien)? (?:que (?:tu|vous) (?:me |m')(?:<write>)|(?:avoir|recevoir) (?:de )?(?:tes|vos) (?:nouvelles|<messages>)|(?:a nouveau|de nouveau) .*(?:<messages>))
        n'hesite[sz]? pas a (?:me |m')(?:<write>)|(?:reabonne|reinscris)[- ]moi|start
    """,
    reporting=r"""
        dit|disait|dire|dis-lui|dites|a dit|crie|criait|ecrit a|repond(?:it|u)?|murmur\w*|tradui\w*|signifie|veut dire|chanson|poeme|lettre|phrase|titre|film|histoire|corrige\w*|reformule\w*|quoted
    """,
    conjunctions="mais|et|car|parce que|donc|alors|ou|sinon|puis",
    parts={
        Part.DAY_AFTER: "apres-demain|apres demain",
        Part.TOMORROW: "demain(?: matin| soir| midi| apres-midi)?|aujourd'hui|ce soir pas|cette nuit",
        Part.EVENING: "ce soir|cet apres-midi|apres le (?:travail|boulot|dejeuner|diner)",
        Part.WEEKEND: "(?:ce |le )?week-?end(?: prochain)?",
        Part.NEXT_WEEK: "(?:la )?semaine prochaine|cette semaine|quelques jours",
        Part.NEXT_MONTH: "(?:le )?mois prochain|ce mois-ci",
        Part.LATER: "plus tard|tout a l'heure|maintenant|pour l'instant|pour le moment|en ce moment|la|bientot|une autre fois|dans un moment|tout de suite",
    },
    weekdays="lundi mardi mercredi jeudi vendredi samedi dimanche".split(),
    units=units("min(?:ute)?s? heures?|h jours? semaines? mois"),
    numbers=numbers(
        "1 une demi|une|un, 2 deux, 3 trois, 4 quatre, 5 cinq, 6 six, 7 sept, 8 huit, 10 dix, "
        "15 quinze, 20 vingt, 30 trente"
    ),
    prepositions="jusqu'a|jusqu'au|avant|dans|pendant|pour|a|le|d'ici|des|encore|peut-etre|plutot|que|ce|au moins",
)
