"""Abbreviations by language, and by whether a sentence can end with them.

Entries are separated by spaces and lack their last period. `~` is optional
white space: `z.~B` matches "z. B." and "z.B.". The language of a text is not
detected, so an entry must not be a word that often ends a sentence in another
language.

The module `sentences` finds some abbreviations by their form, so they are not
listed:
single letters ("J.", "p.", "г.") and short parts without spaces ("U.S.",
"i.d.R.", "т.п.").
"""

import re

# These never end a sentence: titles, and abbreviations that introduce a name or
# an example.
NEVER_LAST = {
    "en": "Mr Mrs Ms Mx Dr Prof St Ste Mt Ft Gen Col Maj Lt Cmdr Cpl Sgt Capt "
    "Adm Brig Rev Hon Gov Pres Sen Rep Msgr Fr Messrs Mme Mlle vs viz Cf cf "
    "ca approx esp incl resp trans née Op e.~g i.~e",
    "de": "z.~B z.~T d.~h bzw bspw vgl sog zit ggf ggfs evtl inkl exkl zzgl "
    "einschl entspr insb insbes eigtl",
    "fr": "p.~ex par~ex c.-à-d env",
    "es": "p.~ej",
    "it": "ad~es p.~es per~es cfr",
    "ro": "de~ex",
    "pl": "m.~in np tj tzn tzw zob wg",
    "cs": "např tzv tzn tj mj srov popř příp",
    "ru": "т.~е т.~к т.~н напр",
    "el": "π.~χ δηλ βλ",
    "tr": "örn bkz",
}
# These do not end a sentence if a number follows.
NUMBERED = {
    "en": "No Nos Nr Vol Vols pp Fig Figs Sec Ch Art Eq Par fl ch chap ed Jan "
    "Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec",
    "de": "Abs Abb Tab Bd Bde Kap Ziff Nrn Anm Rn Rdnr Bl Anl Taf Jg Str Tel "
    "Aufl Mär Okt Dez max min",
    "fr": "art chap fig vol col liv parag tél éd janv févr avr juil",
    "es": "núm núms art arts pág págs cap caps fig tom párr ed ene abr dic",
    "it": "nn artt pag pagg cap tav par sez lett gen giu lug ott sec",
    "pt": "pág cap séc tel fev dez máx mín",
    "ro": "nr art alin lit pag pct sec",
    "pl": "nr ust pkt str rys rozdz poz tel ok godz",
    "cs": "čl odst písm str kap obr tab roč č",
    "ru": "стр рис табл гл ст разд вып илл тел кв корп ок янв февр фев мар "
    "апр июн июл авг сент окт нояб дек",
    "el": "σελ αρ αριθ άρθρ παρ τόμ κεφ εικ σχ πίν τηλ",
    "tr": "md sf böl şek",
    "vi": "tr",
    "hi": "पृ सं क्र नं",
}
# These end a sentence only if the next word can begin a sentence.
OFTEN_LAST = {
    "en": "Inc Ltd Co Corp Bros Jr Sr Esq Dept Univ Assn Ave Blvd Rd Mass "
    "Conn Calif etc al lit",
    "de": "usw usf dgl Chr Hr Frl Jh Jhd Jhdt Mio Mrd Tsd Str Ing Nachf phil "
    "med jur rer nat geb gest verh Hrsg Dipl Bsp allg urspr jew Hl hl",
    "fr": "av apr Cie bd boul ex Mmes Mlles Mgr Pr Sté",
    "es": "Ud Uds Vd Vds aprox admón dpto EE UU FF AA CC OO RR HH JJ MM SS NN "
    "Cía Sra Srta Sres Sras Dra Dres Lic Arq Gral Cnel Tte Sgto Cmte Mons "
    "Pbro Dña Excmo Excma Ilmo Ilma Sto Sta Av Avda Pza Ctra Profa",
    "it": "ecc sig Sig Sigg sig.ra sig.na dott Dott dott.ssa prof prof.ssa "
    "avv Avv Geom Rag Magg Arch ing P.za V.le",
    "pt": "Ltda Srs Drs Dras Eng Exmo Exma Cel V.~Exa V.~Sa",
    "ro": "Hr univ str dl Dl dna Dna acad conf sf Sf jud mun Mun șos",
    "pl": "gen dr mgr inż Inż doc Doc ks Ks św Św ul płk ang łac niem woj gm "
    "por Por",
    "cs": "stol násl mld tis Sb MUDr JUDr PhDr RNDr MVDr Bc ul nám tř sv Sv "
    "plk pplk kpt angl něm",
    "ru": "гг вв пр пер пл ред обл им ген полк чел тыс млн млрд проф Проф "
    "акад Акад доц Доц тов гр ул наб бул просп пос дер оз св Св гос англ греч "
    "итал исп инж лейт адм кн изд см См ср Ср",
    "el": "αι εκατ δισ Δρ δρ καθ Αγ αγ λεωφ κα",
    "tr": "yy Cad Sok Mah Apt Şti Hz Doç Yrd Öğr Gör Uzm Sn Alb Yzb",
    "vi": "TS TT GS BS TP Tp tp PGS ThS Ths NSND NSƯT",
    "hi": "आई पी जी डॉ डा प्रो पं श्री स्व कु ए बी सी डी ई एफ "
    "एच जे के एल एम एन क्यू आर एस टी यू वी डब्ल्यू डब्लू एक्स "
    "वाई ज़ेड",
}
# These end a sentence if a capital follows. The last two entries are ordinary
# words, not abbreviations.
AND_SO_ON = "т.~д т.~п κ.~λπ κ.~ά κ.~τ.~λ ș.~a ș.~a.~m.~d v.~v я ж"
# Words that begin sentences and are not names.
BEGINNINGS = {
    "en": "The This That These Those It Its He She His Her They Their There "
    "We Our You In On At As By For From After Before During When While Since "
    "But And However Although Though If Both Some Many Most One An Then",
    "de": "Der Die Das Dem Des Ein Eine Einer Eines Er Sie Es Wir Ihr Dies "
    "Diese Dieser Dieses Im Am Auf Aus Bei Bis Mit Nach Vor Zu Zum Zur Für "
    "Durch Als Wenn Während Dort Hier Dann Danach Damals Dabei Auch Aber Und "
    "Doch Seine Ihre So Nur Seit Heute Alle Viele Einige Trotz Nachdem Weil "
    "Daher Deshalb",
    "fr": "Il Elle Ils Elles On Nous Vous Je Ce Cette Ces Dans En Pour Avec "
    "Sans Sur Sous Selon Après Avant Depuis Pendant Lors Mais Et Puis Ainsi "
    "Quand Cependant Aussi Ensuite C'est C’est",
    "es": "Una Por Para Con Sin Según Su Sus Este Esta Estos Estas Eso Él "
    "Ella Ellos Ellas Cuando Pero También Además Entre Desde Hasta Tras "
    "Durante Aunque Después Luego Hoy Así Es Fue Se Más Allí Era",
    "it": "Nel Nella Nei Con Per Questo Questa Questi È Egli Lui Essi Ma "
    "Anche Quando Dopo Prima Poi Oggi Allora",
    "pt": "Os Em Com Sem Esta Isso Ele Eles Elas Não Foi Mas Após Depois Seu "
    "Sua Hoje",
    "ro": "Acest Această Aceasta Acestea Ei Ele În Din Pe Cu Pentru Prin După "
    "Când Dacă Dar Iar Nu Astfel Deși Apoi",
    "pl": "W We Na Po Przez Dla To Ten Był Była Było Jego Jej Nie Jednak Gdy "
    "Kiedy Jeśli Tak Także Również Podczas Potem Obecnie",
    "cs": "V Ve Po Pro Před Při Tento Tato Toto Byl Byla Bylo Jeho Její Však "
    "Když Pokud Také Podle Během Potom Pak Dnes",
    "ru": "В Во На С Из За По Об От До Для При Он Она Оно Они Его Её Их Это "
    "Этот Эта Эти Так Также Но И А Однако Если Когда Как Что Мы После Перед "
    "Все Всё Тогда Потом Затем Здесь Там Был Была Были Существует Именно "
    "Поэтому Сегодня Позднее Впервые Многие Среди Через",
    "el": "Ο Η Το Οι Τα Τον Την Του Της Των Στο Στη Στην Στον Στα Από Με Για "
    "Σε Και Αλλά Ωστόσο Όμως Όταν Αν Ένας Μία Ένα Αυτός Αυτή Αυτό Κατά Μετά "
    "Πριν Επίσης Δεν Ήταν Είναι Εκεί Τότε",
    "tr": "Bu Şu O Bir Ve Ama Ancak Fakat Daha Sonra Böylece Ayrıca Her Bazı "
    "Çok Eğer Onun Biz Bugün Günümüzde",
    "vi": "Các Những Một Trong Khi Nó Ông Họ Đây Đó Tuy Nhưng Và Vì Theo Từ "
    "Tại Trên Sau Trước Với Để Nếu Cũng Ngoài",
    "ar": "كان كانت ثم هذا هذه وقد لا هو هي",
    "hi": "यह वह ये वे इस उस इसके उसके उन्होंने फिर लेकिन और",
}
# Words that begin sentences and are also parts of names.
ARTICLES = (
    "La Le Les El Los Las Un Une Uno De Del Della Di Da Du Des Den Von Lo Gli "
    "Al O A Os As Na"
)
_SPACE = r"[\s\x{a0}\x{2009}\x{202f}]"


def alternatives(
    entries: dict[str, str] | str, least_for_capital: int | None = None
) -> str:
    """Returns a regular expression in RE2's syntax that matches any entry.

    Args:
        entries: a table of this module, or one of its values.
        least_for_capital: entries of at least this many characters also match
            with a capital first letter; None for no entries.
    """
    if isinstance(entries, dict):
        entries = " ".join(entries.values())
    found = {}
    for entry in entries.split():
        pattern = re.escape(entry).replace(r"\~", "~")
        if least_for_capital is not None and len(entry) >= least_for_capital:
            pattern = f"[{entry[0]}{entry[0].upper()}]{pattern[1:]}"
        found[pattern.replace("~", f"{_SPACE}?")] = None
    return "|".join(found)
