"""Under both Kerases, a run in the process answers as its SavedModel does."""

_TASKS = ("wikihop", "hotpotqa", "nq", "openkp", "read_twice_hotpotqa")
