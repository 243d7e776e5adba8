"""Reads user files and tables: JSON, CSV, Parquet, data frames."""

from etcmodel import extras

extras.require("ijson", "msgspec")
