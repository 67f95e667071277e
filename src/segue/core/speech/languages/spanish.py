"""Spanish requests about follow-ups."""

from typing import Final

from segue.core.speech.languages.grammar import Grammar, Part, numbers, units

SPANISH: Final = Grammar(
    lists={
        "degree": "por favor|porfa(?:vor)?|ya|ahora|de verdad|simplemente|solo|de una vez|en serio|mejor|tambien|nunca|jamas|mas",
        "me": "me|nos",
        # "escribas, escribirme, escribiendome": the pronoun may be attached.
        "write": (
            "escrib(?:as|a|ir|irme|irnos|iendo|iendome|ais|an)|contact(?:es|e|ar|arme|ando|andome|en)"
            "|molest(?:es|e|ar|arme|ando|andome|en)|habl(?:es|e|ar|arme|ando|andome)|mand(?:es|e|ar|arme|ando|andome)"
            "|envi(?:es|e|ar|arme|ando|andome)|fastidi(?:es|ar|arme|ando|andome)|acos(?:es|ar|arme|ando|andome)"
            "|llam(?:es|e|ar|arme|ando)|insist(?:as|a|ir|irme|iendo)|incordi(?:es|ar|arme)|agobi(?:es|ar|arme)"
            "|notifi(?:ques|car|carme|cando)|record(?:ar|arme|es)|recuerd(?:es|e)|avis(?:es|ar|arme)|jod(?:as|er|erme)"
            "|spame(?:es|ar|arme)|texte(?:es|ar|arme)|busques|buscarme|mensaje(?:es|ar|arme)|preguntes|preguntarme|perturbes|atosig(?:ues|ar|arme)|hagas seguimiento|hacerme seguimiento|hacer seguimiento"
        ),
        "messages": (
            "mensajes?|mensajitos|notificaci(?:on|ones)|recordatorios?|avisos?|seguimientos?|correos?"
            "|e-?mails?|sms|textos?|alertas?|contactos?|whatsapps?"
        ),
        "some": "(?:(?:de|con|los|las|tus|sus|estos|esos|tantos|mas|todos|todos los|ningun|otros|el|tu|este|ese|automaticos) )*",
    },
    leads=r"""
        <degree>|gracias|ok|vale|bueno|si|oye|oiga|hola|hey|mira|mire|pero|y|pues|entonces|perdon|lo siento|disculpa|a partir de ahora|de ahora en adelante|en el futuro
        (?:puedes|podrias|quieres|querrias|puede|podria|te importaria|le importaria)|te (?:pido|ruego|he dicho|dije)(?: que)?|le (?:pido|ruego)(?: que)?
        (?:yo )?(?:quiero|quisiera|necesito|prefiero|preferiria|me gustaria|deseo|exijo|espero|agradeceria|te agradeceria) que|seria mejor que|haz el favor de|haga el favor de|hazme el favor de|deberias|debes|tienes que|es hora de que|(?:te )?lo repito
    """,
    stops=r"""
        (?:deja|deje|dejad|dejen|para|pare|basta|dejes|dejar|dejaras|parar|parases|termina|cesa) (?:(?:<degree>) )*(?:ya )?(?:de|con)(?: (?:<me>))? (?:<write>)(?: (?:<some>)(?:<messages>))?
        (?:basta|para|deja|deje|suficiente|se acabo|stop|alto|ya basta|ya esta bien|fin|estoy hart[oa]|hart[oa]|me tienes hart[oa])(?: (?:<degree>))*(?: (?:de|con|a))+ <some>(?:<messages>)
        no (?:(?:<degree>|vuelvas a|vuelva a|sigas|siga|quiero que|hace falta que|es necesario que|necesito que|tienes que|tienes por que|hay que|te molestes en|deberias) )*(?:(?:<me>|lo) )?(?:(?:<degree>|vuelvas a|vuelva a|sigas|sigas con|siga) )*(?:<write>)(?: <some>(?:<messages>))?
        (?:nunca|jamas)(?: (?:mas|vuelvas a|me))* (?:(?:<me>) )?(?:vuelvas a )?(?:<write>)
        que no (?:(?:<me>) )?(?:(?:<degree>|vuelvas a|sigas) )*(?:<write>)(?: <some>(?:<messages>))?
        (?:no|ya no|nunca) (?:(?:<degree>) )*(?:quiero|deseo|necesito|quisiera|me interesan?|me gustan?|pedi|aguanto)(?: (?:<degree>|recibir|ver|tener|volver a|saber|nada|oir|que|ser|que me|que nos|seguir recibiendo|seguir))*(?: (?:<some>)(?:<messages>)| nada de ti| (?:mas )?de ti| (?:<write>)| contactad[oa]| molestad[oa])+
        (?:no|ni un|ningun|nada de|sin|cero)(?: (?:<degree>))* (?:<some>)(?:<messages>)
        (?:no )?(?:mas|ningun) (?:<messages>)
        no (?:hace falta|es necesario|hay necesidad|tienes|necesitas)(?: (?:de|que|por que))* ?(?:(?:<me>) )?(?:<write>)
        (?:deja|deje|dejad|dejen)(?:me|nos)(?: (?:<degree>))* (?:en paz|tranquil[oa]s?|sol[oa]|vivir|respirar)
        (?:me |nos )(?:dejes|deje|dejaras|dejases|dejas)(?: (?:<degree>))* (?:en paz|tranquil[oa]s?|sol[oa])|dejarme (?:en paz|tranquil[oa]|sol[oa])
        (?:vete|larg(?:a|ue)te|marchate|fuera|pierdete|callate|cierra (?:la boca|el pico)|silencio|olvidame|olvidate de mi|alejate(?: de mi)?|dame un respiro|quitate)(?: de aqui)?
        (?:darme de baja|quiero darme de baja|dame de baja|deme de baja|cancela(?:r)? (?:mi |la )?suscripcion|borrame de (?:tu|la|esta) lista|quitame de (?:tu|la|esta) lista|sacame de (?:tu|la|esta) lista|eliminame de (?:tu|la|esta) lista|desuscribirme|desuscribeme)
        (?:desactiva|desactive|apaga|apague|silencia|cancela|quita|elimina|suspende|deten|detener|detenga)(?:r)? (?:(?:los|las|tus|sus|estos|esos|todos los|todas las|esas|estas) )+(?:<messages>)
        (?:solo|unicamente)(?: (?:<me>))? (?:responde(?:me)?|contesta(?:me)?|escribe(?:me)?|escribas|habla(?:me)?|hables|contactes|respondas)(?: (?:cuando|si) .*)|(?:responde|contesta|escribe|habla|escribeme|hablame) (?:solo|unicamente) (?:cuando|si) .*|espera a que (?:yo )?te (?:escriba|hable|pregunte|contacte).*
        (?:me )?estas (?:molestando|fastidiando|acosando|agobiando|hartando|cansando)(?:me)?|(?:eres|que) (?:un[a]? )?(?:pesad[oa]|molest[oa])|(?:me )?molestas
    """,
    commands="stop|para(?: ya)?|ya basta|basta(?: ya)?|alto|deten(?:te)?|baja|pare",
    endings=r"""
        <degree>|mas|nunca|jamas|gracias|ok|vale|otra vez|de nuevo|nunca mas|para siempre|en absoluto|todo el tiempo|cada dia|todos los dias|constantemente|a cada rato|asi|de esa manera|por (?:tu|su) parte|de tu parte|tuyos|en el futuro|a partir de ahora|inmediatamente|de inmediato|entendido|quieres|tu|usted|primero|por tu cuenta|sobre (?:eso|esto)|de (?:eso|esto)|si es posible|si puedes|a menos que.*|salvo que.*|hasta que (?:yo )?.*|si no .*|porque.*|a no ser que.*|que .*molesta|con (?:eso|esto|tus \w+|tantos \w+)|de ti|joder|conmigo|a mi
    """,
    loose_stops=r"""
        (?:cesen|cese|absten\w+)(?: \w+){0,4} (?:<messages>|de (?:<write>))(?: \w+){0,6}|dejame tranquil[oa](?: \w+){0,4}|(?:parale|paren|para)(?: ya)? con (?:los |tantos |tus )?(?:<messages>)
        (?:deja|deje|dejes|dejaras|dejar|dejen|para|pare|parar)(?: \w+){0,2} de(?: \w+){0,2} (?:<write>|mandarme|enviarme|hacerme spam|darme la lata)
        no (?:\w+ ){0,5}me (?:\w+ ){0,3}(?:<write>|escribieras|contactaras|contactara|mandes|mande|envies|envie)(?: \w+){0,4} (?:mas|nada|nunca|sin que|si yo no|por iniciativa|<messages>)(?: \w+)*
        (?:que|q) no me (?:escribas|escribieras|contactes|contactaras|mandes|envies|molestes)
        no (?:vuelva|vuelvas)(?: \w+){0,3} a (?:\w+ ){0,3}(?:contacto conmigo|<write>)
        (?:no|ya no) (?:quiero|kiero|deseo|necesito)(?: \w+){0,5} (?:<messages>|contactad[oa]|me escribas|q me escribas)
        ya no me (?:mandes|escribas|envies|molestes)(?: \w+){0,3}|no me (?:envies|mandes|escribas) mas(?: \w+){0,4}
        (?:desactiva|apaga|quita|cancela)(?: \w+){0,2} (?:<messages>)(?: \w+){0,2}(?: que me mandas| espontaneos| automaticos)(?: que me mandas)?
        no tomes la iniciativa|(?:me escribes|tus mensajes)(?: \w+){0,4} para(?: ya| por favor)?$|tu no me escribas|podrias no escribirme|que dejaras de (?:<write>)|dejes de (?:<write>)
    """,
    vetoes=r"""
        el (?:me|no|dijo|dice|se)|ella|ellos|mi (?!movil|telefono|bebe)\w+|mis \w+|alguien|la gente|vecin[oa]|jefe|jefa|dile|digale
        dijo|decia|traduc\w*|traduzca|significa|cancion|poema|carta|frase|titulo|pelicula|cuento|historia|corrige|reformula|escribeme (?:un|una) \w+|un poema
        no (?:dejes|deje|pares|pare) (?:nunca )?de|netflix|newsletter|boletin|facebook|whatsapp|iphone|por la noche|de noche|por la manana|antes de las \w+|despues de las \w+|fines? de semana|tan larg[oa]s?|detalles|como (?:hago|digo|desactivo|bloqueo)|por que|me llames|olvides|en (?:ingles|espanol|frances|aleman)|listas?|parrafos?|enlaces?|no (?:\w+ ){1,4}que (?:dejes|dejaras|pares) de|companer[oa]|meu|minha|nao|voce|vc|amazon|zalando
    """,
    laters=r"""
        (?:ahora|hoy|ahorita|por ahora|de momento|esta noche)(?: mismo)? no(?: (?:puedo|es (?:un )?buen momento))?|no (?:ahora|hoy|es (?:un )?buen momento|por ahora|en este momento)|(?:es |)mal momento|mas tarde|luego|despues|otro dia|en otro momento|otra vez sera|quizas? (?:mas tarde|luego|otro dia)|tal vez (?:mas tarde|luego)
        (?:hablamos|seguimos|continuamos|lo (?:hablamos|vemos|hacemos|dejamos)|lo dejamos para|hablemos|sigamos|continuemos|nos (?:vemos|hablamos|escribimos|leemos)|podemos (?:hablar|seguir|continuar|hacerlo|verlo|dejarlo)|prefiero (?:hablar|hacerlo|seguir)|dejemoslo(?: para)?|veamoslo|hagamoslo)(?: (?:de esto|de eso|esto|eso|sobre (?:esto|eso)|lo|para|con esto))*
        hasta(?: (?:manana|luego|pronto|la proxima|el lunes))?
        (?:escribeme|preguntame|recuerdame|hablame|contactame|buscame|avisame|vuelve a (?:escribirme|preguntarme|intentarlo|hablarme)|intentalo|escriba(?:me)?|pregunteme)(?: (?:de nuevo|otra vez|eso|esto))*
        (?:yo )?(?:estoy|ando|voy)(?: (?:muy|un poco|ahora|bastante|super|tan|demasiado|ahorita|todavia|algo))* (?:ocupad[oa]|liad[oa]|en (?:una |la )?(?:reunion|junta|clase|llamada)|trabajando|en el trabajo|conduciendo|manejando|en el (?:medico|dentista|cine|tren|metro|avion)|de vacaciones|fuera|comiendo|cenando|durmiendo|al telefono|de viaje|con prisa)
        (?:yo )?(?:no tengo|sin)(?: (?:mucho|ahora|hoy))* tiempo|(?:ahora )?no tengo tiempo
        (?:yo )?(?:ahora )?no puedo(?: (?:hablar|escribir|responder|contestar|atenderte|seguir))?(?: contigo)?|(?:yo )?(?:necesito|quiero) (?:un (?:poco de )?)?(?:tiempo|descanso|pausa|pensar(?:lo)?|dormir|espacio)
        (?:dame|deme)(?: (?:un (?:momento|rato|minuto|segundo)|tiempo|espacio))?
        (?:yo )?(?:ya )?(?:te|le|lo|me)? ?(?:respondo|contesto|escribo|aviso|digo|dire|pensare|pienso|respondere|contestare|avisare|escribire|hare|hago|vere|llamo)
        (?:eso |esto )?puede esperar|dejalo para
    """,
    goodbyes=r"""
        adios|chao|chau|hasta (?:luego|manana|pronto|la vista|la proxima|siempre|otra)|nos vemos|buenas noches|que (?:tengas|tenga) (?:un )?buen (?:dia|fin de semana)|que (?:tengas|tenga) (?:una )?buena (?:tarde|noche)|cuidate|cuidese|eso es todo|es todo|nada mas|no necesito nada mas|hablamos
    """,
    resumes=r"""
        (?:al final )?(?:me gustaria|quiero|quisiera) que me (?:volvieras|vuelvas) a (?:<write>)|puede volver a (?:<write>)(?: <some>(?:<messages>))?
        (?:ya )?puedes (?:volver a (?:<write>)|(?:<write>)(?: (?:de nuevo|otra vez|cuando quieras|cuando.*)))|(?:ya )?me puedes volver a (?:<write>)
        (?:escribeme|hablame|contactame|mandame mensajes|vuelve a (?:<write>)|vuelva a (?:<write>)) ?(?:de nuevo|otra vez|cuando quieras)?
        (?:activa|reactiva|enciende|conecta|reanuda|retoma)(?: de nuevo)? (?:los|las|tus) (?:<messages>)|empieza a (?:<write>)
        (?:yo )?(?:quiero|quisiera|me gustaria) (?:volver a )?(?:saber de ti|recibir (?:tus )?(?:<messages>)|que me (?:<write>))(?: (?:de nuevo|otra vez))?|start|alta
    """,
    reporting=r"""
        dice|dijo|decia|decir|dile|digale|dijeron|grit\w*|escribi(?:o|a)|respondi(?:o|a)|susurr\w*|traduc\w*|traduzca|significa|cancion|poema|carta|frase|titulo|pelicula|cuento|historia|corrige|reformula|quoted
    """,
    conjunctions="pero|y|porque|asi que|o|entonces|pues|ademas|aunque",
    parts={
        Part.DAY_AFTER: "pasado manana",
        Part.TOMORROW: "manana(?: por la (?:manana|tarde|noche))?|hoy",
        Part.EVENING: "esta (?:tarde|noche)|por la (?:tarde|noche)|despues (?:del trabajo|de comer|de cenar)",
        Part.WEEKEND: "(?:este |el )?fin de semana|finde",
        Part.NEXT_WEEK: "(?:la )?(?:semana que viene|proxima semana|semana proxima)|esta semana|unos dias|algunos dias",
        Part.NEXT_MONTH: "(?:el )?(?:mes que viene|proximo mes)|este mes",
        Part.LATER: "mas tarde|luego|despues|ahora(?: mismo)?|ahorita|por ahora|de momento|en este momento|pronto|en un rato|otro dia|en otro momento",
    },
    weekdays="lunes martes miercoles jueves viernes sabado domingo".split(),
    units=units("min(?:uto)?s? horas?|h dias? semanas? mes(?:es)?"),
    numbers=numbers(
        "1 media|una|un, 2 dos|un par de, 3 tres, 4 cuatro, 5 cinco, 6 seis, 7 siete, 8 ocho, "
        "10 diez, 15 quince, 20 veinte, 30 treinta"
    ),
    prepositions="hasta|el|la|en|dentro de|por|durante|para|antes del?|a|proximo|este|quizas?|mejor|las proximas",
)
