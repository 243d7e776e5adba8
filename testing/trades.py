"""The words of the demo's corpus that only one trade's sentences have."""

# Written out, not taken from the generator's tables.
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
