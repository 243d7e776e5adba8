"""ETC: global-local encoders."""
