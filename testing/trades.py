"""Words that occur in sentences of only one trade in the demo's corpus."""

# These words are written out so that they do not come from the generator.
TELLTALES = {
    "lighthouse": {"lighthouse", "beacon", "lantern"},
    "beehives": {"beehives", "honey", "bees"},
    "saltworks": {"saltworks", "brine", "salt"},
    "vineyard": {"vineyard", "grapes", "wine"},
    "shipyard": {"shipyard", "masts", "boats"},
    "glassworks": {"glassworks", "bottles", "glass"},
    "weavers": {"weavers", "looms", "wool"},
    "printers": {"printers", "almanacs", "books"},
}
