"""The demo's fictional world: names, trades and sentences.

The world is an archipelago. Every island is known for two of eight trades, and
the documents of a record (`corpus.py`) say so in varying words. All text is
invented; nothing is taken from a dataset.

Words about a trade occur only in sentences about it. A reader who knows the
words can answer every question, but counting names does not help.
"""

import dataclasses

# An island's name is a pair of these words, such as "Belmora Holm". Several
# islands of a record may share one of the two words.
ISLAND_WORDS = (
    "Aldera", "Belmora", "Corvane", "Dunskar", "Elmira", "Fennick",
    "Galdor", "Hestia", "Ildane", "Jorvel", "Kemble", "Lorrow",
    "Marrick", "Nimway", "Ossian", "Pellam", "Quarrow", "Ravenor",
    "Selkie", "Tasmer", "Ulvar", "Varrow", "Wexley", "Zander",
)  # fmt: skip
ISLAND_KINDS = (
    "Holm", "Cay", "Reach", "Skerry", "Ness", "Point", "Sound", "Rock",
    "Haven", "Strand", "Fell", "Tor", "Spit", "Isle", "Cove", "Moor",
)  # fmt: skip

FIRST_NAMES = (
    "Abril", "Bertan", "Cisel", "Dorma", "Edric", "Fiora", "Gusta", "Hilke",
    "Ivo", "Jelle", "Katrin", "Lennik", "Mirte", "Nanno", "Orla", "Piet",
)  # fmt: skip
LAST_NAMES = (
    "Ashdown", "Birk", "Calloway", "Drost", "Everby", "Fenn", "Grote",
    "Hobb", "Ingles", "Jarrow", "Kester", "Lunde", "Mossman", "Nye",
    "Oakes", "Pruitt",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Trade:
    """A property that an island can have.

    Attributes:
        name: name of the trade in questions.
        phrases: predicates that follow a subject, such as an island.
        sayings: sentences in which `{who}` stands for the subject.
    """

    name: str
    phrases: tuple[str, ...]
    sayings: tuple[str, ...]


TRADES = (
    Trade(
        "lighthouse",
        ("keeps a tall lighthouse", "lights a beacon for passing ships",
         "burns a great lantern above the cliffs"),
        ("At night sailors look for the lantern of {who}.",
         "Nobody has seen the beacon of {who} go dark."),
    ),
    Trade(
        "beehives",
        ("keeps long rows of beehives", "sells honey in clay jars",
         "raises bees among the heather"),
        ("Children everywhere ask for the honey of {who}.",
         "The gentle bees of {who} fly until late autumn."),
    ),
    Trade(
        "saltworks",
        ("owns an old saltworks", "dries brine in shallow pans",
         "sends sacks of salt to the mainland"),
        ("Cooks swear by the coarse salt of {who}.",
         "The brine of {who} is the strongest of all."),
    ),
    Trade(
        "vineyard",
        ("planted a vineyard on the slopes", "presses grapes every autumn",
         "stores red wine in cool cellars"),
        ("Guests praise the wine of {who}.",
         "The grapes of {who} ripen before all others."),
    ),
    Trade(
        "shipyard",
        ("runs a busy shipyard", "carves masts and oars",
         "builds sturdy boats of larch"),
        ("Captains order their masts from {who}.",
         "The boats of {who} are known to last."),
    ),
    Trade(
        "glassworks",
        ("owns a famous glassworks", "blows green bottles from sand",
         "makes window panes of clear glass"),
        ("Chemists buy their bottles from {who}.",
         "The blue glass of {who} is worth its weight in silver."),
    ),
    Trade(
        "weavers",
        ("employs a dozen weavers", "works twenty wooden looms",
         "spins fine wool for coats"),
        ("One hears the looms of {who} from afar.",
         "Nothing is as warm as the wool of {who}."),
    ),
    Trade(
        "printers",
        ("trains skilled printers", "sells almanacs and maps",
         "binds books in calfskin"),
        ("Scholars collect the books of {who}.",
         "The almanacs of {who} are read aloud in taverns."),
    ),
)  # fmt: skip

# Sentences around a phrase: `{who}` is the subject, `{phrase}` the predicate.
FRAMES = (
    "{who} {phrase}.",
    "By all accounts {who} {phrase}.",
    "For years now {who} {phrase}.",
    "As everyone knows, {who} {phrase}.",
    "It is said that {who} {phrase}.",
)

# Where people live; used only for records with a bridge.
RESIDENCES = (
    "{person} lives on {island}.",
    "The home of {person} is on {island}.",
    "{person} was born on {island} and never left.",
    "On {island} one finds the house of {person}.",
)

# Sentences that mention islands without facts about trades.
REMARKS_ON_ONE = (
    "The weather on {first} turns without warning.",
    "We stayed three days on {first} and slept well.",
    "The harbour of {first} is narrow but deep.",
    "Nobody could tell us how old {first} is.",
    "The people of {first} speak slowly.",
    "A storm kept us from leaving {first} that week.",
)
REMARKS_ON_TWO = (
    "The crossing from {first} to {second} takes a day.",
    "From the hills of {first} one can see {second}.",
    "{first} and {second} share a mayor.",
    "Many families of {first} have cousins on {second}.",
    "{first} lies a little south of {second}.",
)

# First sentences of documents; they name no island.
OPENINGS = (
    "This letter was written at sea.",
    "Notes of a travelling clerk.",
    "My aunt told me the following.",
    "Here is what the pilot wrote.",
    "From the diary of a merchant.",
    "The tax collector reports as follows.",
)

# A question that was written by hand and is not in the corpus.
QUESTION = {
    "id": "typed_by_hand",
    "query": "island_with lighthouse and beehives",
    "answer": "jorvel strand",
    "candidates": [
        "aldera skerry",
        "jorvel strand",
        "hestia ness",
        "belmora reach",
        "hestia cove",
        "tasmer strand",
    ],
    "supports": [
        "Notes of a travelling clerk. We stayed three days on Jorvel Strand, "
        "and at night all of us could see the great lantern of Jorvel Strand. "
        "By all accounts Aldera Skerry runs a busy shipyard. For years now "
        "Belmora Reach sells honey in clay jars. The harbour of Hestia Ness "
        "is narrow but deep.",
        "My aunt told me the following. Hestia Cove lies a little south of "
        "Hestia Ness. Nobody has seen the beacon of Aldera Skerry go dark. It "
        "is said that Tasmer Strand keeps long rows of beehives. As everyone "
        "knows, Hestia Cove runs a shipyard and builds sturdy boats.",
        "From the diary of a merchant. Chemists buy their bottles from Belmora "
        "Reach. The people of Jorvel Strand speak slowly. Jorvel Strand raises "
        "bees among the heather, and children everywhere ask for the honey of "
        "Jorvel Strand. Hestia Ness keeps a tall lighthouse.",
        "The tax collector reports as follows. Captains order their masts from "
        "Tasmer Strand. Hestia Ness owns a famous glassworks. The crossing "
        "from Belmora Reach to Tasmer Strand takes a day. It is said that "
        "Hestia Cove makes window panes of clear glass.",
    ],
}
