"""The settings of a broker: keys, types, files, flags and variables."""
