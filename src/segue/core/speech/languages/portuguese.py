"""Portuguese requests about follow-ups, European and Brazilian."""

from typing import Final

from segue.core.speech.languages.grammar import Grammar, Part, numbers, units

PORTUGUESE: Final = Grammar(
    lists={
        "degree": "por favor|pf|pfv|faz favor|se faz favor|agora|ja|mesmo|so|de uma vez|a serio|serio|simplesmente|nunca|jamais|mais|nunca mais|tambem|logo|por gentileza",
        "me": "me|nos|comigo|pra mim|para mim",
        "write": (
            "escrev(?:er|as|a|er-me|endo|am)(?:-me)?|contact(?:ar|es|e|ar-me|ando)(?:-me)?|contat(?:ar|es|e|ando)|incomod(?:ar|es|e|ando)(?:-me)?"
            "|mand(?:ar|es|e|ando)(?:-me)?|envi(?:ar|es|e|ando)(?:-me)?|fal(?:ar|es|e|ando)|chate(?:ar|ies|ie|ando)(?:-me)?"
            "|perturb(?:ar|es|e|ando)(?:-me)?|lig(?:ar|ues|ue|ando)|insist(?:ir|as|a|indo)|importun(?:ar|es|e)(?:-me)?|assedi(?:ar|es|e)"
            "|aborrec(?:er|as|a)(?:-me)?|encher|enchas|encha|notifi(?:car|ques|que)|avis(?:ar|es|e)|lembr(?:ar|es|e)|procur(?:ar|es|e)"
            "|cham(?:ar|es|e|ando)|atorment(?:ar|es)|spam(?:ar|es)|perguntar|pergunt(?:es|e)|mac(?:ar|es)(?:-me)?"
        ),
        "messages": (
            "mensage(?:m|ns)|msgs?|notifica(?:cao|coes)|lembretes?|avisos?|e-?mails?|sms|alertas?|textos?|contact[eo]s?|contatos?|acompanhamentos?"
        ),
        "some": "(?:(?:de|das|dos|com|os|as|o|a|tuas|teus|suas|seus|essas|estas|esses|estes|dessas|destas|tantas|mais|todas|todas as|todos os|nenhuma|nenhum|outras|automaticas) )*",
    },
    leads=r"""
        <degree>|obrigad[oa]|ok|okay|bom|bem|sim|ola|oi|ei|olha|olhe|mas|e|entao|desculpa|desculpe|a partir de agora|de agora em diante|no futuro|escuta|cara
        (?:podes|poderias|pode|poderia|podias|queres|quer|voce pode|voce poderia|importas-te de|se importa de|da pra|da para)|(?:ja )?(?:te|lhe) (?:pedi|disse|peco)(?: para| que)?|(?:ja )?(?:peco|pedi|disse) (?:que|para)
        (?:eu )?(?:quero|queria|gostaria|prefiro|preferia|preciso|desejo|exijo|espero|agradecia|agradeceria|gostava)(?: (?:de )?que(?: tu| voce)?)?|seria melhor que|faz o favor de|faca o favor de|deves|devia|tens de|tem que|voce tem que|voce precisa|voce deve|e hora de|voce|tu
    """,
    stops=r"""
        (?:para|pare|pares|parar|parem|deixa|deixe|deixes|deixar|deixem|chega|cessa|cesse|evita|evite|parasse|parasses|basta)(?: (?:<degree>))*(?: (?:de|com))(?: (?:<me>))? (?:<write>)(?: (?:<me>))?(?: (?:<some>)(?:<messages>))?
        (?:chega|basta|para|pare|parar|stop|farto|farta|estou (?:farto|farta|cansado|cansada)|cansei|acabou|fim|sem|zero|nada|nenhuma|nenhum|nao quero)(?: (?:<degree>))*(?: (?:de|com))* (?:<some>)(?:<messages>)
        (?:nao|nunca|jamais)(?: (?:<degree>|<me>|precisas de|precisa|precisa de|quero que|quero que voce|quero que tu|gostaria que|voltes a|volte a|tens de|ha necessidade de|e preciso|e necessario|continues a|continue|vale a pena|tem que|deves))* (?:<write>)(?: (?:<me>|<degree>|nada|<some>(?:<messages>)))*
        (?:que )?(?:nao) (?:(?:<me>) )?(?:escrevas|escreva|escrevesse|escrevesses|contactes|contacte|contate|contatasse|incomodes|incomode|incomodasse|mandes|mande|mandasse|fales)(?: (?:<degree>|<me>|<some>(?:<messages>)))*
        (?:nao|ja nao|nunca)(?: (?:<degree>))* (?:quero|desejo|preciso|gosto|pedi|me interessam|queria|gostaria)(?: (?:<degree>|de|receber|ver|ter|ser|saber|ouvir|que me|que|voltar a|nada|falar))*(?: (?:<some>)(?:<messages>)| de (?:ti|voce|si)| contactad[oa]| contatad[oa]| incomodad[oa]| (?:<write>)| contigo| com voce)+
        (?:nao|nunca) mais (?:<messages>)|(?:sem|nada de|nenhuma|nenhum|mais nenhuma|nao mais) (?:mais )?(?:<messages>)|nao (?:ha necessidade|e preciso|e necessario|precisa|precisas)(?: (?:de|que))* (?:(?:<me>) )?(?:<write>)
        (?:deixa|deixe|deixem|deixar)(?:-me|-nos| me| nos| eu)(?: (?:<degree>))* (?:em paz|sossegad[oa]|sozinh[oa]|quiet[oa]|tranquil[oa]|respirar)
        (?:me |nos )(?:deixa|deixe|deixes|deixem|deixar)(?: (?:<degree>))* (?:em paz|sossegad[oa]|sozinh[oa]|quiet[oa]|tranquil[oa])|larga do meu pe|sai do meu pe|sai da minha vida|me esquece|esquece-me|esqueca-me|me larga|larga-me|me erra
        (?:vai embora|vai-te embora|va embora|desaparece|desapareca|some|some daqui|suma|cala a boca|cala-te|cale-se|calado|calada|silencio|fica quieto|fica calado|fora daqui|sai daqui|some da minha vida|vai a merda|vai te catar)
        (?:cancela(?:r)? (?:a )?(?:minha )?(?:inscricao|subscricao|assinatura)|descadastrar|descadastre-me|me descadastra|remove-me da (?:tua )?lista|remova-me da (?:sua )?lista|me (?:tira|tire|remova|remove) da(?: sua| tua)? lista|tira-me da(?: tua)? lista|(?:quero )?(?:cancelar a inscricao|descadastrar-me|me descadastrar|sair da lista))
        (?:desativa|desative|desativar|desliga|desligue|desligar|silencia|silencie|cancela|cancele|suspende|suspenda|remove|bloqueia|interrompe)(?:r)? (?:(?:as|os|tuas|suas|essas|estas|todas as|todos os|as tuas|as suas) )+(?:<messages>)
        (?:responde|responda|fala|fale|escreve|escreva|me responde|me responda|contacta-me)(?: (?:comigo|me))? (?:so|somente|apenas) (?:quando|se) .*|(?:so|apenas|somente) (?:responde|responda|fala|fale|escreve|escreva|me responda|me escreva|me mande mensagem) (?:quando|se) .*|espera (?:que )?eu (?:te )?(?:escrever|escreva|falar|fale|perguntar).*
        (?:(?:estas|voce esta|ta|esta)(?: a)? (?:incomodar|chatear|incomodando|chateando|perturbando|enchendo)(?:-me| me| o saco)?|(?:voce )?(?:me )?(?:incomoda|irrita|enche o saco))|(?:estas-me|esta-me|voce esta me|voce ta me) (?:a )?(?:incomodar|chatear|incomodando|chateando|perturbando|irritando)
    """,
    commands="stop|(?:pare|para)(?: com isso| ja)?|chega|basta|sair",
    endings=r"""
        <degree>|mais|nunca|jamais|obrigad[oa]|ok|outra vez|de novo|novamente|para sempre|pra sempre|o tempo todo|a toda hora|todos os dias|todo dia|todo o dia|constantemente|sempre|assim|da tua parte|da sua parte|teus|tuas|suas|no futuro|a partir de agora|imediatamente|entendeu|percebeste|entendido|ta|ta bom|ta bem|voce|tu|primeiro|por conta propria|sobre (?:isso|isto)|se possivel|se puder(?:es)?|a menos que.*|a nao ser que.*|ate (?:que )?eu .*|se eu nao .*|enquanto eu nao .*|porque .*|a mim|comigo|com (?:isso|isto|essas|tuas|suas) ?\w*|de ti|de voce|nada|pra mim|para mim|cara|porra|caramba
    """,
    loose_stops=r"""
        (?:so|apenas) (?:fales|fale|respondas|responda)(?: comigo)? quando eu(?: \w+)*|espere que eu escreva(?: \w+)*|nao puxe conversa|(?:cessem|cesse)(?: \w+){0,3} (?:<messages>)(?: \w+){0,2}
        (?:deixasse|deixasses|parasse) de me (?:<write>)(?: \w+)*|nao mos envies mais|sem mais (?:<messages>)(?: \w+){0,2}|deixa-me em paz(?: \w+)*|parar de me chamar(?: \w+){0,2}
        (?:para|pare|pares|parar|parasse|deixa|deixe|deixar|parem)(?: \w+){0,2} de(?: \w+){0,2} (?:<write>|spammar|encher o saco)(?: \w+){0,6}
        (?:nao|naum|n|nunca) (?:\w+ ){0,3}me (?:\w+ ){0,2}(?:<write>|manda|envia|chama|escreve|voltasse a contactar|escreveres|escrevesses)(?: \w+){0,2} (?:mais|nunca|sem|nada|<messages>|msg)(?: \w+)*
        (?:nao|naum|n) (?:quero|desejo)(?: \w+){0,5} (?:<messages>|msg|me mande|contactad[oa]|contatad[oa])(?: \w+)*
        (?:que|para|se) (?:voce |vc )?nao (?:me )?(?:\w+ ){0,2}(?:escreva|escrevas|escrevesse|escrevesses|contactar|entrasse|escreveres|contacte)(?: \w+)*
        so me (?:escreve|escreva|manda mensagem|responde|fala) se eu(?: \w+)*|nao (?:tome|tomes) a iniciativa
        (?:desativa|desative|desliga|desligue)(?: \w+){0,3} (?:<messages>)(?: \w+){0,2}(?: que (?:voce|vc) me manda| espontaneas| automaticas)(?: que (?:voce|vc) me manda)?
        (?:me escreve|me escreves|tuas mensagens|suas mensagens)(?: \w+){0,4} (?:pare|para|chega)(?: por favor)?|parar de me (?:<write>|mandar)(?: \w+){0,3}
    """,
    vetoes=r"""
        o texto|o resumo|o ficheiro|o arquivo|o link
        ele|ela|eles|o meu (?!telemovel|celular|bebe)\w+|a minha \w+|meu (?!celular|bebe)\w+|minha \w+|alguem|as pessoas|vizinh[oa]|chefe|diz-lhe|fala pra ele
        disse (?:que|pra ele)|dizia|traduz\w*|traduza|significa|musica|cancao|poema|carta|frase|titulo|filme|historia|conto|corrige|corrija|reformul\w*
        nao (?:pares|pare|deixes) de|netflix|newsletter|facebook|instagram|iphone|a noite|de noite|de manha|antes das \w+|depois das \w+|fim de semana|tao long\w+|muito long\w+|detalhes|como (?:faco|digo|desativo|bloqueio)|por que|porque nao|me chames|esquecas|fumar|em (?:ingles|portugues|frances)|listas?|paragrafos?|links?|que (?:pares|pare|deixes) de|amazon|zalando
    """,
    laters=r"""
        (?:agora|hoje|neste momento|por agora|por enquanto|esta noite|hoje a noite)(?: mesmo)? nao(?: (?:posso|da|e (?:um )?bom momento))?|nao (?:agora|hoje|e (?:um )?bom momento|por agora|neste momento|da agora)|(?:e |)(?:um )?mau momento|mais tarde|depois|outro dia|outra hora|noutra altura|em outro momento|talvez (?:mais tarde|depois|outro dia|amanha)|fica para (?:depois|outra)
        (?:falamos|conversamos|continuamos|a gente (?:se fala|conversa|continua|fala|ve isso)|vamos (?:falar|conversar|continuar|deixar(?: isso)?(?: para| pra)?|fazer isso|ver isso)|falemos|nos (?:falamos|vemos)|podemos (?:falar|continuar|conversar|fazer isso|deixar(?: isso)?(?: para| pra)?)|prefiro (?:falar|continuar|fazer isso)|deixamos(?: isso)?(?: para)?|vemos isso)(?: (?:disso|disto|isso|isto|sobre (?:isso|isto)|com isso))*
        ate(?: (?:amanha|logo|breve|mais|mais tarde|segunda|depois))?
        (?:escreve-me|escreva-me|me escreve|me escreva|pergunta-me|me pergunta|me pergunte|lembra-me|me lembra|me lembre|fala comigo|fale comigo|me chama|me chame|me procura|volta a (?:escrever|perguntar|falar)|tenta|tente|contacta-me|manda mensagem|me manda mensagem)(?: (?:de novo|outra vez|novamente|isso))*
        (?:eu )?(?:estou|to|tou|ando|vou)(?: (?:muito|um pouco|agora|bastante|super|tao|meio|ainda|bem))* (?:ocupad[oa]|em (?:reuniao|aula|viagem|chamada)|numa (?:reuniao|chamada|aula)|no (?:trabalho|medico|dentista|cinema|comboio|trem|onibus|metro)|na (?:aula|reuniao)|a trabalhar|trabalhando|a conduzir|dirigindo|de ferias|fora|a almocar|a jantar|almocando|jantando|ao telefone|no telefone|sem tempo|com pressa|dormindo|a dormir)
        (?:eu )?(?:nao tenho|sem|estou sem|to sem)(?: (?:muito|agora|hoje))* tempo
        (?:eu )?(?:agora )?nao (?:posso|consigo|da para|da pra)(?: (?:falar|escrever|responder|conversar|te responder|continuar))?|(?:eu )?(?:preciso de|preciso|quero) (?:um )?(?:(?:pouco de )?tempo|descanso|descansar|uma pausa|pausa|pensar(?: nisso)?|espaco|dormir)
        (?:da-me|de-me|me da|me de)(?: (?:um (?:momento|minuto|segundo|tempo)|tempo|espaco|uns minutos))?
        (?:eu )?(?:ja )?(?:te|lhe|vou|logo)? ?(?:respondo|responder|escrevo|escrever|aviso|avisar|digo|dizer|penso|pensar|respondo-te|digo-te|aviso-te|falo|volto|faco)(?: (?:nisso|contigo|com voce|isso|a falar))?
        (?:isso |isto )?pode esperar
    """,
    goodbyes=r"""
        adeus|tchau|xau|ate (?:logo|amanha|breve|mais|ja|a proxima|depois|mais tarde|segunda)|boa (?:noite|tarde)|bom (?:dia|fim de semana|final de semana)|tenha um bom dia|tem um bom dia|fica bem|se cuida|cuida-te|e tudo|so isso|e so isso|mais nada|era so isso|beijos|abraco|a gente se (?:ve|fala)
    """,
    resumes=r"""
        (?:pronto )?(?:voce )?pode (?:voltar a )?me (?:<write>)(?: <some>(?:<messages>))?(?: (?:de novo|novamente|outra vez))?|(?:afinal )?(?:gostava|gostaria|queria) que me (?:voltasses|voltasse) a (?:<write>)
        (?:ja |agora )?(?:podes|pode|voce pode|voce ja pode) (?:voltar a |tornar a |me )?(?:<write>)(?: (?:<me>|de novo|outra vez|novamente|quando quiser(?:es)?|quando.*))*
        (?:volta|volte|torna|recomeca|recomece|comeca|comece) a (?:me )?(?:<write>)(?: (?:<me>|de novo))*|(?:escreve-me|me escreve|me escreva|fala comigo|me manda mensagens?) (?:de novo|outra vez|novamente|quando quiser(?:es)?)
        (?:ativa|ative|reativa|reative|liga|ligue|retoma|retome)(?: de novo)? (?:as|os|tuas|suas|as tuas|as suas) (?:<messages>)(?: (?:de novo|outra vez))?
        (?:eu )?(?:quero|queria|gostaria de|gostava de) (?:voltar a )?(?:ter noticias tuas|ter noticias suas|receber (?:as )?(?:tuas |suas )?(?:<messages>)|saber de (?:ti|voce)|ouvir de (?:ti|voce)|que me (?:<write>))(?: (?:de novo|outra vez|novamente))?|start
    """,
    reporting=r"""
        diz|disse|dizia|dizer|diz-lhe|diga|fala pra ele|grit\w*|escreveu|respond(?:eu|ia)|sussurr\w*|traduz\w*|traduza|significa|musica|cancao|poema|carta|frase|titulo|filme|historia|conto|corrige|corrija|reformul\w*|quoted
    """,
    conjunctions="mas|e|porque|entao|ou|por isso|pois|porem|depois",
    parts={
        Part.DAY_AFTER: "depois de amanha",
        Part.TOMORROW: "amanha(?: de manha| a tarde| a noite| cedo)?|hoje",
        Part.EVENING: "hoje a (?:noite|tarde)|esta (?:noite|tarde)|a noite|a tarde|depois do (?:trabalho|almoco|jantar)",
        Part.WEEKEND: "(?:este |no |o )?(?:fim de semana|fim-de-semana|final de semana)",
        Part.NEXT_WEEK: "(?:na |a )?(?:semana que vem|proxima semana|semana proxima)|para a semana|esta semana|uns dias|alguns dias",
        Part.NEXT_MONTH: "(?:no |o )?(?:mes que vem|proximo mes)|este mes",
        Part.LATER: "mais tarde|depois|logo|agora(?: mesmo)?|por agora|por enquanto|neste momento|em breve|daqui a pouco|outro dia|outra hora|mais logo",
    },
    weekdays=(
        "segunda(?:-feira)? terca(?:-feira)? quarta(?:-feira)? quinta(?:-feira)? "
        "sexta(?:-feira)? sabado domingo"
    ).split(),
    units=units("min(?:uto)?s? horas?|h dias? semanas? mes(?:es)?"),
    numbers=numbers(
        "1 meia|uma|um, 2 duas|dois, 3 tres, 4 quatro, 5 cinco, 6 seis, 7 sete, 8 oito, 10 dez, "
        "15 quinze, 20 vinte, 30 trinta"
    ),
    prepositions="ate|a|o|na|no|em|dentro de|daqui a|por|durante|para|pra|antes de|proxima|proximo|talvez|melhor|nas proximas",
)
