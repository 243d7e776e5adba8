"""A hand-written question that is in no corpus."""

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
