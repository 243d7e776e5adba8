"""WikiHop: chooses among candidate answers by reading several documents."""
