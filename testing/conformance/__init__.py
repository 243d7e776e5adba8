"""What every layer has to be able to do, tried on tables of layers."""
