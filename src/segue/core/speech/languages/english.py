"""English requests about follow-ups, and whether a text is English.

The rules about replies know English only. In doubt a text is not English: then they say less.
"""

import re
from typing import Final

from segue.core.speech.languages.grammar import Grammar, Part, numbers, units

_DEGREE = "really|just|simply|please|kindly|ever|now|also|honestly|actually|seriously"

ENGLISH: Final = Grammar(
    lists={
        "degree": _DEGREE,
        "not": "(?:do not|don't|dont|never|no longer)",
        "me": "me|us",
        # With an object, as in "write to me"; the second list needs none.
        "bother": (
            "write(?: to)?|text|message|msg|dm|contact|ping|bother|disturb|bug|nudge|pester|spam"
            "|harass|annoy|poke|notify|call(?= me(?: again| any ?more| ever| please)*$)|e-?mail|mail|nag|hassle|badger|follow up with"
            "|check in (?:on|with)|check up on|check on|reach out to|get in touch with|talk to"
            "|speak to|chat with|get back to|come back to|keep (?:<bothering>)"
        ),
        "bothering": (
            "writing(?: to)?|texting|messaging|contacting|pinging|bothering|disturbing|bugging"
            "|nudging|pestering|spamming|harassing|annoying|poking|notifying|calling|e-?mailing"
            "|mailing|nagging|hassling|badgering|following up with|checking (?:in|up)? ?(?:on|with)"
            "|reaching out to|talking to|chatting with|messaging"
        ),
        "follow_up": (
            "follow(?: |-)?up(?: on (?:this|that|it|anything|me))?|check in|check up|reach out"
            "|get in touch|(?:send|give|text|write)(?: <me>)? <some>(?:<messages>)"
            "|start (?:any |new |a )*conversations?(?: with <me>)?|write first|message first"
        ),
        "following_up": (
            "following up(?: on (?:this|that|it|me))?|checking in|checking up|reaching out"
            "|(?:sending|giving|texting|writing)(?: <me>)? <some>(?:<messages>)|messaging|texting"
            "|writing|pinging|spamming|starting conversations?|writing first|messaging first"
        ),
        "some": (
            "(?:(?:any|anymore|more|further|so many|such|these|those|your|all|all of|the|unsolicited"
            "|proactive|automatic|automated|unwanted|constant|random|daily|stupid|annoying|damn"
            "|bloody|fucking|kind of|another|a|of) )*"
        ),
        "messages": (
            "messages?|texts?|msgs?|follow(?: |-)?ups?|check(?: |-)?ins?|nudges?|pings?|updates?"
            "|notifications?|emails?|e-mails|alerts?|reminders?|prompts?|spam|stuff like that"
        ),
        "contacted": (
            "contacted|messaged|bothered|disturbed|texted|pinged|written to|notified|nudged"
            "|reminded|pestered|spammed|called|emailed|followed up with|checked (?:up |in )?on"
        ),
    },
    leads=r"""
        <degree>|pls|plz|hey(?: \w+)?|hi(?: \w+)?|hello(?: \w+)?|ok|okay|ok(?:ay)? \w+|well|look
        listen|so|then|no|nope|yes|yeah|yep|thanks|thank you|thx|sorry|sure|great|fine|alright|right
        but|and|again|next time|from now on|in (?:the )?future|for now|as i said|like i said|once again
        for (?:god|heaven|christ|fuck|pete)'?s sake|dude|man|bro|mate|bot|omg|ugh|once and for all
        (?:can|could|will|would|won't|can't) (?:you|u|ya)|would you mind|do you mind
        (?:i|we) (?:<degree> )*(?:want|need|would like|'d like|ask|asked|told|beg|expect|wish)(?: for)? (?:you|u) (?:to|would)
        (?:i'd|i would) (?:<degree> )*(?:like|love|prefer|want|need|ask) (?:it )?(?:if )?(?:you|u)(?: to| would| could)?
        (?:i'd|i would) (?:really )?(?:appreciate|be grateful|be happy|be glad)(?: it)? if you(?: would| could)?
        i'm (?:asking|begging|telling) you to|i (?:already )?(?:said|told you|asked you)(?: to)?
        it would be (?:nice|great|better|good|best) if you(?: would| could)?|i think you should
        you (?:should|must|can|could|may|have to|need to|better|had better)|you'd better|it's time to
        how (?:do|can|could) i (?:make|get) you(?: to)?
    """,
    stops=r"""
        (?:stop|quit|cease|refrain from|give up|no more|enough (?:of|with)|cut out|knock off)(?: it)?(?: with)? (?:all )?(?:this |that |the |your )?(?:<bothering>) <me>
        (?:stop|quit|cease|refrain from|no more|enough (?:of|with)|cut out|knock off)(?: it)?(?: with)? (?:all )?(?:this |that |the |your )?(?:<following_up>)
        (?:i'?(?:ve| have) had |i've got |)(?:stop|quit|cease|end|discontinue|enough (?:of|with)|no more of|cut out|halt)(?: it with| it| with)? (?:the|your|these|those|all|all the|all these|all your|this|any)(?: \w+)? (?:<messages>)
        (?:stop|quit|cease|end) (?:follow(?: |-)?ups?|check(?: |-)?ins?|messages|notifications)
        (?:you )?(?:<not>|must not|shouldn't|should not|mustn't|can't|cannot|may not|are not to|aren't allowed to|not)(?: <degree>| dare)* (?:<bother>) <me>
        (?:you )?(?:<not>|must not|shouldn't|should not|mustn't|may not|not)(?: <degree>)* (?:<follow_up>)
        (?:you )?(?:don't|do not|dont|needn't) (?:need to|have to|need|gotta)?(?: <degree>)* ?(?:(?:<bother>) <me>|<follow_up>)
        (?:there's|there is|there was)? ?no (?:need|reason) (?:for you )?to(?: keep)? (?:(?:<bother>) <me>|<follow_up>|(?:<bothering>) <me>|<following_up>)
        (?:i )?(?:<degree> )*(?:<not>|didn't|did not|am not|'m not) (?:<degree> )*(?:want|wish|need|like|ask|asking|care)(?: for| you)? to (?:be (?:<contacted>)|hear from you|hear anything from you|(?:get|receive|see|read|have) <some>(?:<messages>)|talk to you|(?:<bother>) <me>|<follow_up>)
        (?:i )?(?:<degree> )*(?:<not>|didn't|did not) (?:<degree> )*(?:want|wish|need|like|ask for|appreciate) (?:any |more |further |any more |anymore |your |these |those |all these |to get |you |being )*(?:<messages>|(?:<bothering>) <me>|<contacted>|<following_up>)
        (?:i )?(?:never want|<degree> want no more|want no more|want no further|want none of)(?: to hear from you| <some>(?:<messages>))
        (?:i'd|i would) (?:<degree> )*(?:rather|prefer)(?: it)?(?: if)? (?:you )?(?:not|didn't|did not|wouldn't|to not|not to) (?:(?:<bother>) <me>|<follow_up>|be (?:<contacted>)|(?:<bothering>) <me>|(?:messaged|contacted|wrote to|texted|bothered|followed up with|checked in with) <me>|followed up|checked in)
        no (?:more|further) (?:of )?(?:these |those |your )?(?:\w+ )?(?:<messages>)
        no (?:<messages>)
        (?:i )?(?:<degree> )*(?:hate|dislike|can't stand)(?: it)? (?:when|that|if) you (?:keep )?(?:(?:<bother>) <me>|<follow_up>|(?:<bothering>) <me>)
        (?:cease|stop|no|end) (?:all |any |further |this |more )*contact|not (?:(?:<bothering>) <me>|<following_up>)
        leave <me> (?:alone|be|in peace|out of it)
        (?:let <me> (?:be|alone)|give <me> (?:some )?(?:peace|a rest)|get off my back|get out of my (?:life|face|hair)|stay away(?: from <me>)?|keep away from <me>)
        (?:go away|get lost|piss off|fuck off|bugger off|buzz off|back off|f off|sod off|shut up|shut it|zip it|pipe down)
        (?:stay|be|keep|remain) (?:quiet|silent)(?: (?:until|unless|till) i.*)?
        (?:please )?unsubscribe(?: me)?(?: from (?:this|these|it|all|your \w+|everything))?
        (?:(?:i|i'd|i'm|we) )?(?:want to |wanna |would like to |like to |have |choose to |)opt(?:ed|ing)?(?: me)? out(?: of (?:this|these|it|all|all this|your|the|<some>(?:<messages>)|everything))?
        (?:take|remove|delete) me (?:off|from) (?:your|the|this|any) (?:\w+ )?list
        (?:turn|switch|shut)(?: your| the| these| those| all)*(?: \w+)? (?:<messages>|proactive mode|autonomous mode) off
        (?:turn|switch|shut) off (?:your |the |these |those |all |all the |my |automatic |any )*(?:<messages>|proactive mode|autonomous mode)
        (?:disable|deactivate|mute|cancel|discontinue|suspend) (?:your |the |these |those |all |all the |any |my |automatic |future |further )*(?:messages|follow(?: |-)?ups?|check(?: |-)?ins?|nudges|notifications)
        (?:only|just) (?:answer|reply|respond|write|speak|talk|message me|write to me|contact me|text me)(?: to me)? (?:if|when|once|after) (?:i|you are|you're|spoken|asked|i'm).*
        (?:speak|answer|reply|respond|talk|write) only (?:if|when|once) (?:i|you are|you're|spoken|asked|i'm).*
        (?:wait|hold off|hold back)(?: for me)? (?:until|till|to) (?:i )?(?:write|ask|message|contact|text|reach|come|am the one|speak|say).*
        (?:don't|do not) (?:you )?(?:write|speak|talk|message|say anything|text|contact me|write to me|message me|text me|bother me|reach out|follow up|check in)(?: to me)? (?:unless|until|till) (?:i|asked|spoken|you are|you're).*
        (?:you(?:'re| are)) (?:<degree> |being )*(?:bothering|bugging|spamming|harassing|annoying|disturbing|pestering|nagging) me
        how (?:do|can|could|to) i? ?(?:stop|turn off|disable|unsubscribe from|opt out of|get rid of|switch off) (?:you(?:r)? |these |the |those |all |you from )*(?:<messages>|(?:<bothering>) <me>|<following_up>)
    """,
    commands="stop(?: it)?|stopall|stop all|stop everything|quit|end|unsubscribe",
    endings=r"""
        again|any ?more|any longer|ever|ever again|please|pls|now|right now|already|ok|okay|thanks|thank you|thx
        at all|immediately|at once|from now on|from today(?: on)?|in (?:the )?future|forever|for good|altogether
        all the time|constantly|every (?:day|hour|few \w+|five minutes|morning|time)|so (?:often|much)|like this|like that|this way|first|yourself
        with (?:(?:this|these|that|those|your|all (?:this|these|that|your)|more|any more) ?\w*|<some>(?:<messages>))
        about (?:this|that|it|anything|everything|my \w+|your \w+)|for any reason|on your own|by yourself|out of the blue|anytime soon|any time soon
        (?:un)?til i .*|unless .*|because .*|since i .*|for heaven's sake|bro|man|dude|mate|bot|you \w+|ffs|seriously|really|just
        if (?:that's|it's) (?:ok|okay|possible|alright)|if (?:you )?(?:don't mind|possible|you can|you please)|would you|will you|do you (?:hear|understand)(?: me)?|i mean it|everyone|guys|today and tomorrow and forever
        or (?:whatever|anything|something).*|or (?:<follow_up>|(?:<bother>) <me>|<bothering>|<following_up>|(?:<messages>)).*|and (?:<follow_up>|(?:<bothering>)|<following_up>).*
    """,
    loose_stops=r"""
        (?:don't|dont|do not|never) (?:send|text|write|message)(?: me| us)?(?: \w+){0,3} unless i
        (?:refrain from|cease|would you mind not|stop) (?:all )?(?:contacting|reaching out|messaging|writing|unsolicited)(?: \w+){0,4}
        only (?:spoke|speak|talk|reply|answer|write|respond)(?:ed)?(?: to me)? (?:when|if) i
        (?:stop|don't|do not)(?: \w+){0,2} send(?:ing)? (?:them|these|those|any more|anything)(?: \w+){0,3}
        turn off(?: \w+){0,2} (?:proactive|automatic|autonomous)(?: \w+){0,2}|take me off your(?: \w+){0,3} list|you keep writing to me(?: \w+){0,8} stop(?: that)?
        (?:stop|quit|stopped|stopping|cease)(?: \w+){0,2} (?:<bothering>|msging|writting|mesaging|texting) (?:me|us)
        (?:stop|quit|stopped) (?:sending|giving)(?: me)?(?: \w+){0,4} (?:<messages>|stuff|things)
        (?:don't|dont|do not|never|not to|not)(?: \w+){0,3} (?:write(?: to)?|text|message|msg|contact|ping|bother|e-?mail) (?:me|us)(?: \w+){0,5} (?:again|anymore|any ?more|unprompted|on your own|out of the blue|unless i)
        (?:no longer|don't|dont|do not|never)(?: \w+){0,2} (?:want|wish|need)(?: \w+){0,5} (?:<messages>) from (?:you|u)
        (?:turn|switch) off(?: \w+){0,3} (?:<messages>)(?: that)? you send
        leave (?:me|us) (?:alone|in peace|be)
        (?:you're|you are|you keep|your)(?: \w+){0,6} (?:too (?:much|often|many)|stress\w*|annoying|creepy)(?: \w+){0,4} (?:please )?stop
        when you (?:write|text|message)(?: to)? me(?: \w+){0,8} (?:please )?(?:stop|don't)
    """,
    vetoes=r"""
        my phone won't|the \w+ (?:won't|wants|never|only)
        he|she|they|him|her|his|my \w+ (?:won't|keeps?|doesn't|is|has|said|told|never|always|still|ex|boss|sends?)|phone|my (?:ex|boss|mother|mom|mum|dad|friend|sister|brother|wife|husband|neighbou?r|colleague|landlord|bank|ex-\w+)|people|someone|somebody|everyone|who|guy|stranger|spammers?
        translate|say|says|said|saying|means?|meaning|lyrics|song|poem|story|letter|reply to|draft|tell|told (?:me|my|him|her)|wrote|quote|called|titled
        (?:don't|dont|do not|never|won't|can't|cannot|didn't|doesn't|not) (?:ever )?(?:stop|quit|leave)|netflix|newsletter|facebook|instagram|whatsapp|linkedin|amazon|iphone|android|at (?:night|work)|before \d\w*|after \d\w*|in the (?:morning|evening|middle)|weekends?|such (?:a )?long|so long|long (?:answers?|messages|texts)|details?|call me|if i|what (?:if|happens)|why (?:did|do) you|(?:don't|do not|not)(?: \w+){0,3} (?:stop|quit)|in (?:english|german|french|spanish|caps)|links?|lists?|bullets?|words?|paragraphs?|spam emails|zalando|ebay|paypal
    """,
    laters=r"""
        not (?:right )?now|not today|not at the moment|not at this time|not tonight|not this (?:week|time)|now is not (?:a|the) (?:good|best|right) time|(?:this is )?(?:a )?bad time|it's a bad time|this isn't a good time
        (?:maybe |perhaps |)(?:later|another time|some other time|another day|some other day)
        (?:let's|lets|let us|can we|could we|shall we|we can|we could|we should|we'll|we will|i'd rather|i'd prefer to|maybe we can|i want to|i'd like to) (?:please )?(?:talk|speak|chat|continue|do (?:this|that|it)|discuss (?:this|it|that)|pick (?:this|it) up|come back to (?:this|it)|go on|finish (?:this|it)|look at (?:this|it)|meet|catch up|write|reconnect|resume)(?: (?:about (?:this|it|that)|again|here|there|with (?:this|it|that)|this|it|on))*
        (?:talk|speak|write|chat)(?: to| with)? (?:you|u|ya)?|ttyl|brb|bbl|afk|be right back|catch (?:you|ya) later|see (?:you|ya|u)|until
        (?:ask|write(?: to)?|message|text|contact|ping|remind|call|get back to|check in with|check back with|follow up with|bother|nudge|talk to|try) me(?: again| about (?:this|it|that))*
        (?:check in|check back|follow up|come back|try|get in touch|reach out)(?: again| with me| to me| on (?:this|it|that))*
        (?:i'm|i am|im|we're|we are) (?:<degree> |very |quite |so |a bit |a little |kind of |super |too |pretty |currently |still |rather )*(?:busy|in a meeting|in meetings|driving|at work|at the (?:doctor|doctor's|dentist|gym|office|airport|cinema|hospital)|in (?:a|the) (?:class|call|lecture|exam|hospital|cinema|theatre)|in class|going to (?:bed|sleep)|off to bed|on (?:a|the) (?:call|phone|train|plane|bus)|having (?:lunch|dinner|breakfast)|swamped|occupied|tied up|not available|unavailable|on holiday|on vacation|away|travelling|traveling)(?: with (?:work|something|other things))?
        (?:i )?(?:don't|do not|dont) (?:really )?have (?:the |any |much )?time(?: for (?:this|it|that|you))?
        (?:i've |i have |i got |)(?:got )?no time(?: for (?:this|it|that|you))?
        (?:i )?(?:can't|cannot|can not|couldn't) (?:really )?(?:talk|chat|speak|write|answer|reply|respond|do (?:this|it|that)|deal with (?:this|it)|think about (?:this|it|that))
        (?:i )?(?:need|want) (?:a (?:little |short )?(?:break|while|moment)|some (?:time|space|rest)|time to think|more time|to (?:sleep|rest|think about it|sleep on it))
        give me(?: some time| a (?:moment|while|break|minute|sec|second)| some space)?
        (?:i'll|i will|ill|i am going to|i'm gonna) (?:get back to you|be back|come back|reply|answer|respond|think about it|let you know|write(?: to)? ?(?:you)?|message you|text you|do (?:it|that|this)|look at (?:it|this|that)|talk to you|check|decide|tell you)(?: (?:on|about) (?:this|it|that))?
        (?:this|it|that) (?:can|will have to|has to|must) wait
        another time|some other time
    """,
    goodbyes=r"""
        (?:good)?bye(?: bye)?|farewell|good ?night|see (?:you|ya|u)|take care|cheers|(?:talk|speak) (?:to you )?(?:soon|later|tomorrow)|so long|have a (?:nice|good|great) (?:day|evening|night|weekend|one)|until (?:next time|tomorrow|then)
    """,
    resumes=r"""
        (?:it's|its|it is|i'm|i am) (?:ok|okay|fine|alright)(?: with it)? if (?:you|u) (?:(?:<bother>) <me>|<follow_up>)(?: again)?
        (?:it's|it is) (?:ok|okay|fine|alright|all right)(?: for you)? to (?:(?:<bother>) <me>|<follow_up>)
        you (?:can|may|could|should)(?: <degree>)* (?:(?:<bother>) <me>|<follow_up>) (?:again|any ?time|whenever.*|if you.*|when you.*|once more|from now on)(?: if you.*)?
        you're (?:welcome|allowed|free) to (?:(?:<bother>) <me>|<follow_up>)
        (?:start|resume|begin|restart|continue|keep|go back to) (?:(?:<bothering>) <me>|<following_up>|(?:your |the |sending )*(?:follow(?: |-)?ups?|check(?: |-)?ins?|messages|nudges))
        (?:(?:<bother>) <me>|<follow_up>)(?: with <me>)? again
        (?:turn|switch)(?: your| the| my| back)* (?:<messages>|them)(?: back)? on
        (?:turn|switch) (?:back )?on (?:your |the |my )*(?:<messages>)
        (?:enable|activate|reactivate|re-enable|unmute) (?:your |the |my )*(?:<messages>)
        opt(?: me)? (?:back )?in|(?:re)?-?subscribe(?: me)?|unstop|unmute(?: yourself)?|start
        (?:i )?(?:<degree> )*(?:want|like|'d like|would like|miss)(?: you)? to (?:hear from you|get <some>(?:<messages>)|(?:<bother>) <me>|<follow_up>)
        (?:i )?(?:<degree> )*(?:want|miss|'d like|would like) (?:your |the )*(?:follow(?: |-)?ups?|check(?: |-)?ins?|messages|nudges)(?: back)?
        feel free to (?:(?:<bother>) <me>|<follow_up>)
    """,
    reporting=r"""
        say|says|said|saying|tell (?:him|her|them|my|the)|tells|told (?:him|her|them|my|me)|wrote|writes|yell\w*|shout\w*|scream\w*|whisper\w*|repl(?:y|ies|ied)|translate|mean(?:s|ing)?|song|lyrics|poem|letter|called|titled|proofread|rephrase|rewrite|spell|phrase|sentence|quoted|line|story|email (?:him|her|my)|draft
    """,
    conjunctions="but|and|so|because|or|then|plus|cause|cuz|though|however",
    parts={
        Part.DAY_AFTER: "the day after tomorrow|day after tomorrow",
        Part.TOMORROW: "tomorrow(?: morning| afternoon| evening| night)?|tmrw|tmr|today|tonight|the morning",
        Part.EVENING: "this evening|this afternoon|the evening|the afternoon|after (?:work|lunch|dinner)",
        Part.WEEKEND: "(?:the |this |next )?weekend",
        Part.NEXT_WEEK: "next week|(?:this|the) week|the week after|the rest of the week|a few days|some days",
        Part.NEXT_MONTH: "next month|(?:this|the) month",
        Part.LATER: "later(?: today| on)?|a (?:bit|while|moment)|now|the moment|some time|(?:a )?few (?:hours|minutes)|right now|soon|another time|some other time",
    },
    weekdays=[
        f"(?:next |this )?{day}"
        for day in "monday tuesday wednesday thursday friday saturday sunday".split()
    ],
    units=units("min(?:ute)?s? h(?:ou)?rs? days? weeks? months?"),
    numbers=numbers(
        "1 an|a|one|half an|the next, 2 two|a couple of, 3 three|a few, 4 four, 5 five, 6 six, "
        "7 seven, 8 eight, 9 nine, 10 ten, 12 twelve, 15 fifteen, 20 twenty, 30 thirty"
    ),
    prepositions="until|till|til|on|in|for|at|by|before|from|again|within|the next|maybe|perhaps|only",
)

_WORD: Final = re.compile(r"[^\W\d_]+")
_READ: Final = 200  # words
_SHARE: Final = 0.15
_FEW: Final = 5
_COMMON: Final = frozenset(
    """
    the a an and or but if so because of to in on at for with from by about as into over after
    before than then i you he she it we they me him her us them my your his its our their this that
    these those is are was were be been am do does did have has had will would can could shall
    should may might must not no yes what which who when where why how all any some more most other
    only just also very too here there now today tomorrow yesterday please thanks thank hello hi
    good great ok okay sure sorry let don didn isn can won doesn wasn aren t s m d ll re ve until
    anything something else around like look find one two three yet still again back up down out
    """.split()
)

# Common in other languages as well.
_SHARED: Final = frozenset(
    "is in we was me a no as do am of over he so an on to i up d t s m".split()
)
# Common words of other languages that no English text has.
_FOREIGN: Final = (
    frozenset(
        """
    de der das und ist nicht sehr bis gern dann claro voila gracias danke merci ich du ein eine mit auf den dem von zu auch wie was bin sind haben het een
    en van je niet zijn met voor dat deze hoe wel ook naar le la les un une et est pas tu vous nous
    que qui dans pour sur des du au avec el los las y es por con una del se lo su mi il gli non che
    per di sono una della os as um uma nao com para seu sua em do da och att det som inte jag har
    på er og ikke til jeg nie jest się na w z to że и в не на я что это
    """.split()
    )
    - _COMMON
)


def is_english(text: str) -> bool:
    words = [*map(str.casefold, _WORD.findall(text))][:_READ]
    known = sum(word in _COMMON for word in words)
    foreign = sum(word in _FOREIGN for word in words)
    if len(words) < _FEW:  # "Oslo.", "Santa Fe Depot": names may be all there is
        return known > foreign or (not foreign and "".join(words).isascii())
    is_sure = any(word in _COMMON - _SHARED for word in words)
    return is_sure and known >= max(foreign, _SHARE * len(words))
