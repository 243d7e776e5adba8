"""WikiHop: choose among candidate answers by reading several documents."""
